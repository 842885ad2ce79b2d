package decide

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/store"
)

var long = flag.Bool("long", false, "draw a million specs and messages")

// kept is a store that a test looks into.
type kept map[string][]byte

func (k kept) List(prefix string, see func(string, []byte) error) error {
	for _, key := range slices.Sorted(maps.Keys(k)) {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			if err := see(rest, k[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

// poisoner draws inputs for a head, plausible but for some fields.
type poisoner struct {
	t     *testing.T
	rng   *rand.Rand
	has   kept
	h     *Head
	asks  int64
	conns map[string]int64
	now   time.Time
}

func (p *poisoner) begin() {
	h, _, err := Load(Options{Term: int64(len(p.has)) + 1<<20, Binary: "bin",
		Fill: func(n int64) int64 { return n }}, p.has)
	require.NoError(p.t, err)
	p.h, p.conns = h, map[string]int64{}
	p.step(Begin{})
	require.Empty(p.t, slices.DeleteFunc(slices.Collect(maps.Keys(p.has)),
		func(k string) bool { return !strings.HasPrefix(k, keyAside) }), "a head cannot read what it has stored")
	for i := range 3 {
		p.connect(fmt.Sprint("h", i+1), nil)
	}
}

// step takes commits as the store does, which refuses what is too large.
func (p *poisoner) step(in Input) {
	p.now = p.now.Add(time.Duration(p.rng.IntN(1000)) * time.Millisecond)
	for todo := p.h.Step(p.now, in); len(todo) > 0; todo = todo[1:] {
		switch e := todo[0].(type) {
		case Commit:
			size := 0
			for _, op := range e.Ops {
				size += len(op.Key) + len(op.Value)
				if delete(p.has, op.Key); op.Value != nil {
					p.has[op.Key] = op.Value
				}
			}
			require.LessOrEqual(p.t, size, store.MostBytes+1<<20, "a commit that no store takes")
			todo = append(todo, p.h.Step(p.now, Stored{e.N})...)
		case Send:
			require.NoError(p.t, e.M.Check(), "what a head says is refused: %T", in)
		}
	}
}

func (p *poisoner) connect(host string, procs []control.Proc) {
	p.asks++
	hello := control.Message{Kind: control.Hello, Procs: procs,
		Info: &control.Info{Name: host, Binary: "bin", Pid: int(p.asks), Memory: 1 << 40, Probe: "1.2.3.4:5"}}
	if c := p.conns[host]; c != 0 {
		p.step(Gone{Host: host, Conn: c})
	}
	p.conns[host] = p.asks
	p.step(Connect{Ask: p.asks, Conn: p.asks, Name: host, Serial: "s", Hello: hello})
}

var (
	numbers = []int64{-1, 0, 1, 2, 3, 7, 255, 256, 4096, 1e9, 1 << 31, math.MaxInt64, math.MinInt64, -1 << 31}
	words   = []string{"", "1", "2", "h1", "h2", "../../etc", "x\x00y", "\x1b[2J", "-1", strings.Repeat("a", 1<<17),
		"1000000000", "/", "/data", "A=1", "train"}
)

// poison fills a value with what is drawn: one field in some is hostile.
func (p *poisoner) poison(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		if n := int64(p.rng.IntN(4)); p.rng.IntN(12) == 0 {
			v.SetInt(numbers[p.rng.IntN(len(numbers))])
		} else {
			v.SetInt(n)
		}
	case reflect.Float64:
		v.SetFloat([]float64{0, 1, -1, 1e300, 1e18}[p.rng.IntN(5)])
	case reflect.String:
		if p.rng.IntN(12) == 0 {
			v.SetString(words[p.rng.IntN(len(words))])
		} else {
			v.SetString([]string{"1", "2", "/data"}[p.rng.IntN(3)])
		}
	case reflect.Bool:
		v.SetBool(p.rng.IntN(2) == 0)
	case reflect.Uint8:
		v.SetUint(uint64(p.rng.IntN(256)))
	case reflect.Pointer:
		if depth > 0 && p.rng.IntN(3) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			p.poison(v.Elem(), depth-1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && p.rng.IntN(3) > 0 {
				p.poison(v.Field(i), depth)
			}
		}
	case reflect.Slice:
		n := p.rng.IntN(4)
		if p.rng.IntN(4000) == 0 {
			n = 100000
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range min(n, 8) {
			p.poison(v.Index(i), depth)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range p.rng.IntN(3) {
			key, x := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			p.poison(key, depth)
			p.poison(x, depth)
			v.SetMapIndex(key, x)
		}
	}
}

// draw gives the head one input.
func (p *poisoner) draw() {
	host := fmt.Sprint("h", 1+p.rng.IntN(3))
	p.asks++
	switch n := p.rng.IntN(10); {
	case n < 2:
		s := control.Spec{}
		p.poison(reflect.ValueOf(&s).Elem(), 2)
		if p.rng.IntN(2) == 0 { // else hardly one is taken
			s.Args, s.Dir, s.Procs, s.Log, s.Keep, s.Talks = []string{"train"}, "/", 1+p.rng.IntN(4), "", nil, nil
		}
		p.step(Submit{Ask: p.asks, Spec: s})
	case n == 2:
		p.step(Stop{Ask: p.asks, Job: fmt.Sprint(p.rng.IntN(p.h.next + 2)), Now: p.rng.IntN(2) == 0})
	case n == 3 && p.rng.IntN(8) == 0:
		var procs []control.Proc
		p.poison(reflect.ValueOf(&procs).Elem(), 1)
		if (&control.Message{Procs: procs}).Check() == nil {
			p.connect(host, procs)
		}
	case n == 3:
		p.step(Elapsed{Timer: p.h.timers - int64(p.rng.IntN(4))})
	default:
		p.say(host)
	}
}

var kinds = []control.Kind{control.Beat, control.Started, control.Listening, control.Ready, control.Exited,
	control.Slow, control.Hung, control.Widths, control.Start, control.Leave, control.Kill, control.Leaving, "x"}

// say draws a message of an agent, mostly about a process that there is.
func (p *poisoner) say(host string) {
	m := control.Message{}
	p.poison(reflect.ValueOf(&m).Elem(), 2)
	m.Kind = kinds[p.rng.IntN(len(kinds))]
	if m.Kind == control.Leaving && p.rng.IntN(50) > 0 {
		m.Kind = control.Start
	}
	if all := p.h.sorted(); p.rng.IntN(8) > 0 && len(all) > 0 {
		j := all[p.rng.IntN(len(all))]
		for n, q := range j.Procs {
			if m.Job = j.ID; q.alive() && p.rng.IntN(2) == 0 {
				host, m.Proc, m.Gen = q.Host, n, q.Gen
			}
		}
		if m.Kind == control.Widths && p.rng.IntN(2) == 0 {
			m.Widths = []control.Width{{Replicas: 2, Procs: len(j.Procs), Bytes: make([]int64, len(j.Procs))},
				{Replicas: 1, Procs: 1, Bytes: []int64{1}}}
		}
	}
	text, err := json.Marshal(m) // as it comes by a connection
	require.NoError(p.t, err)
	got := control.Message{}
	if json.NewDecoder(bytes.NewReader(text)).Decode(&got) == nil && got.Check() == nil {
		p.step(Said{Host: host, Conn: p.conns[host], M: got})
	}
}

// TestPoison: whatever is submitted or said, within the bounds or beyond them, ends no head and leaves nothing
// in the store that the next head cannot read; no message of a head is one that agents refuse.
func TestPoison(t *testing.T) {
	draws := 10000
	if *long {
		draws = 1000000
	}
	p := &poisoner{t: t, rng: rand.New(rand.NewPCG(59, 3)), has: kept{}, now: time.Unix(1e9, 0)}
	h, _, err := Load(Options{Term: 1, Binary: "bin", Fill: func(n int64) int64 { return n }}, p.has)
	require.NoError(t, err)
	p.h = h
	p.step(Enroll{Serials: map[string]string{"h1": "s", "h2": "s", "h3": "s"}, Last: true})
	p.begin()
	for i := range draws {
		if p.draw(); i%500 == 499 { // the head is killed, and jobs that have ended make room for new ones
			p.begin()
		}
		if len(p.h.jobs) > 200 {
			p.has = kept(maps.Clone(p.has))
			maps.DeleteFunc(p.has, func(k string, _ []byte) bool { return strings.HasPrefix(k, keyJobs) })
			p.begin()
		}
	}
	t.Logf("%d drawn, %d keys at the end", draws, len(p.has))
}

// TestSetAside: what a head cannot read, and what has ended heads, is put aside under its name and the head
// goes on without it; no other job gets its number.
func TestSetAside(t *testing.T) {
	good := func(id string) []byte {
		return []byte(`{"id":"` + id + `","state":"queued","spec":{"args":["train"],"dir":"/","procs":1,"hosts":0}}`)
	}
	for name, text := range map[string][]byte{
		"enormous": []byte(strings.Replace(string(good("7")), `"procs":1`, `"procs":1000000000`, 1)),
		"negative": []byte(strings.Replace(string(good("7")), `"procs":1`, `"procs":-1`, 1)),
		"talks":    []byte(strings.Replace(string(good("7")), `"hosts":0`, `"hosts":0,"talks":[{"a":-1,"b":0}]`, 1)),
		"torn":     []byte(`{"id":"7","st`), "null": []byte("null"), "number": good("-7"),
		"no process": []byte(strings.Replace(string(good("7")), `"queued"`, `"running"`, 1)),
		"killer":     good("7"),
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Binary: "bin", Fill: func(n int64) int64 { return n }, Term: 9}
			if name == "killer" {
				o.Aside = map[string]string{"jobs/7": "it has ended the head twice"}
			}
			p := &poisoner{t: t, rng: rand.New(rand.NewPCG(1, 1)), has: kept{"jobs/7": text, "jobs/6": good("6")}}
			h, _, err := Load(o, p.has)
			require.NoError(t, err)
			p.h = h
			p.step(Begin{})
			require.Equal(t, text, p.has["aside/jobs/7"])
			require.NotContains(t, p.has, "jobs/7")
			require.Contains(t, p.has, "jobs/6")
			require.Contains(t, h.events[0].Text, "jobs/7 of the store is set aside: ")
			again, _, err := Load(o, p.has)
			require.NoError(t, err)
			require.Equal(t, 7, again.next)
			require.Empty(t, again.aside)
		})
	}
}

// TestTouched: a driver knows what a head worked on when it died of that, and of nothing else.
func TestTouched(t *testing.T) {
	var said []string
	o := Options{Term: 9, Touch: func(key string) { said = append(said, key) }}
	h, _, err := Load(o, kept{"jobs/7": []byte(`{"id":"7","state":"queued","spec":{"args":["a"],"dir":"/","procs":1,"hosts":0}}`)})
	require.NoError(t, err)
	require.Equal(t, []string{"jobs/7", ""}, said)
	h.Step(time.Unix(1e9, 0), Begin{})
	require.Equal(t, []string{"jobs/7", "", "jobs/7", ""}, said)
	h.jobs["7"].State, h.jobs["7"].Procs = Running, nil // a fault of ours
	require.Panics(t, func() { h.Step(time.Unix(1e9, 0), Stop{Job: "7"}) })
	require.Equal(t, "jobs/7", h.At())
}
