package rehearsal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// tracedMax bounds the jobs that are read from a trace.
const tracedMax = 4_000_000

// Traced is a rank's job in a trace that training or the simulator wrote. Times are seconds.
type Traced struct {
	Rank       int
	Step       int64
	Action     string // as 1F0: stage, kind, microbatch
	Segment    int
	Start, End float64
	Place      string // of the rank on the axes of its plan, as pp 0 dp 1; "" where it is not known
}

// traceEvent is one of Chrome's trace format, of which only what lfactor writes matters.
type traceEvent struct {
	Phase string  `json:"ph"`
	Name  string  `json:"name"`
	Row   int64   `json:"tid"`
	Start float64 `json:"ts"`  // microseconds
	Long  float64 `json:"dur"` // microseconds
	Args  struct {
		Name string `json:"name"`
		Step int64  `json:"step"`
	} `json:"args"`
}

// ReadTrace reads the jobs of ranks from trace.json of a run or from lfactor sim --trace. A trace that ends
// in the middle, as that of a run that was killed, gives what it has; cut is then true. Errors are
// *configs.Error values.
func ReadTrace(name string) (jobs []Traced, cut bool, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, false, &configs.Error{File: name, Why: err.Error()}
	}
	defer f.Close()
	d := json.NewDecoder(bufio.NewReaderSize(f, 1<<20))
	fault := func(why string) error {
		return &configs.Error{File: name, Why: fmt.Sprintf("byte %d: %s; want trace.json of a run, or what "+
			"lfactor sim --trace has written", d.InputOffset(), why)}
	}
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, false, fault("it is not a list of events")
	}
	ranks, places := map[int64]int{}, map[int64]string{}
	for d.More() {
		var e traceEvent
		if err := d.Decode(&e); errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			return jobs, true, nil
		} else if err != nil {
			return nil, false, fault(err.Error())
		}
		switch e.Phase {
		case "M":
			number, place, _ := strings.Cut(strings.TrimPrefix(e.Args.Name, "rank "), " ")
			if rank, err := strconv.Atoi(number); err == nil && e.Name == "thread_name" &&
				strings.HasPrefix(e.Args.Name, "rank ") && rank >= 0 {
				ranks[e.Row], places[e.Row] = rank, strings.Trim(place, "()")
			}
		case "X":
			rank, known := ranks[e.Row]
			dot := strings.LastIndexByte(e.Name, '.')
			if !known || dot < 0 {
				continue // a loader or the coordinator
			}
			if _, err := plan.Parse(e.Name[:dot]); err != nil {
				continue // a rank copies or saves its state
			}
			segment, err := strconv.Atoi(e.Name[dot+1:])
			if err != nil || !(e.Long >= 0) {
				return nil, false, fault(fmt.Sprintf("event %q", e.Name))
			}
			if len(jobs) == tracedMax {
				return jobs, true, nil
			}
			jobs = append(jobs, Traced{Rank: rank, Step: e.Args.Step, Action: e.Name[:dot], Segment: segment,
				Start: e.Start / 1e6,
				End:   (e.Start + e.Long) / 1e6, Place: places[e.Row]})
		}
	}
	_, err = d.Token()
	return jobs, err != nil, nil
}
