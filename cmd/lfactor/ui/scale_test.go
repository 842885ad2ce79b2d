package ui

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
	"github.com/lfactor/lfactor/cmd/lfactor/dashboard"
	"github.com/lfactor/lfactor/topology/machine"
)

// TestScaleInBrowser: a page that shows a run of a million steps, which goes on, and a thousand ranks holds
// at most 200 MB.
func TestScaleInBrowser(t *testing.T) {
	if !*clitest.Long {
		t.Skip("skipped: wants chromium and half a minute; -long runs it")
	}
	const have, ranks = 1_000_000, 1000
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "metrics.jsonl"))
	require.NoError(t, err)
	defer f.Close()
	step := func(n int) {
		text, err := json.Marshal(run.Metrics{Step: int64(n), Loss: 5 - float64(n)/1e6, GradNorm: 1,
			LR: 1e-3, TokensSec: 1e6, MFU: .4, Seconds: 1, PeakBytes: 1e9})
		require.NoError(t, err)
		_, err = f.Write(append(text, '\n'))
		require.NoError(t, err)
	}
	for n := range have {
		step(n + 1)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := dashboard.New(l.Addr().(*net.TCPAddr).Port, dashboard.Options{Dirs: []string{dir}})
	all := statuses(ranks)
	stop, err := machine.Answer(dir, "why", 0, func() any { return all })
	require.NoError(t, err)
	t.Cleanup(stop)
	served := make(chan error)
	go func() { served <- s.Serve(t.Context(), l) }()
	b := startBrowser(t, "")
	p := b.Open(t, 1360, 860)
	require.Equal(t, 200, p.Go(s.Link(dashboard.Viewer)))
	shows := func(n int) string {
		return fmt.Sprintf(`document.querySelector(".chart .read")?.innerText.startsWith("step %d:")`, n)
	}
	p.Until("a million steps are drawn", shows(have))
	curves := p.Heap()
	for n := have + 1; n <= have+20; n++ {
		step(n)
	}
	p.Until("new steps are drawn", shows(have+20))
	p.Key("2")
	p.Until("a thousand ranks are drawn",
		fmt.Sprintf(`document.querySelector("#main").innerText.includes("%d ranks") &&
			document.querySelector("canvas")`, ranks))
	p.Eval(`new Promise((r) => setTimeout(r, 20000))`, nil) // looks come, the shares of the last of which are kept
	graph, all2 := p.Heap(), resident(t, b.Pid)
	require.Empty(t, p.Wrong())
	t.Logf("heap of scripts: %.1f MB with the curves, %.1f MB with the graph; the renderer's private memory %.0f MB", curves/1e6, graph/1e6, float64(all2)/1e6)
	require.Less(t, max(curves, graph), 200e6)
	require.Less(t, all2, int64(200e6))
}

// resident is the private memory of the largest renderer of a browser in bytes: what the page adds to a machine.
func resident(t *testing.T, pid int) (most int64) {
	private := regexp.MustCompile(`(?m)^Private_(?:Clean|Dirty): +(\d+) kB`)
	dirs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, name := range dirs {
		text, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(text), "--type=renderer") || !under(filepath.Dir(name),
			pid) {
			continue
		}
		text, err = os.ReadFile(filepath.Join(filepath.Dir(name), "smaps_rollup"))
		if err != nil {
			continue
		}
		sum := int64(0)
		for _, m := range private.FindAllStringSubmatch(string(text), -1) {
			n, err := strconv.ParseInt(m[1], 10, 64)
			require.NoError(t, err)
			sum += n << 10
		}
		most = max(most, sum)
	}
	require.Positive(t, most, "%v: no renderer is found", time.Now())
	return most
}

// under reports whether a process descends from another.
func under(dir string, pid int) bool {
	parent := regexp.MustCompile(`(?m)^PPid:\s+(\d+)`)
	for range 8 {
		text, err := os.ReadFile(filepath.Join(dir, "status"))
		m := parent.FindSubmatch(text)
		if err != nil || m == nil {
			return false
		}
		if string(m[1]) == strconv.Itoa(pid) {
			return true
		}
		dir = "/proc/" + string(m[1])
	}
	return false
}

// statuses are what so many ranks of 16 stages say, each of which waits for the next and has sent on ten edges.
func statuses(ranks int) (all []host.Status) {
	all = []host.Status{{Ref: layout.CoordinatorRef, Name: "coordinator",
		Wait: actors.Wait{For: layout.FirstRank, What: "Ready"}}}
	for r := range ranks {
		s := host.Status{Ref: layout.FirstRank + actors.Ref(r), Name: fmt.Sprintf("rank %d (pp %d dp %d)", r, r%16, r/16),
			Wait: actors.Wait{For: layout.FirstRank + actors.Ref(r+1), What: "activation 1F0"}, Memory: 1 << 20}
		if r == ranks-1 {
			s.Wait = actors.Wait{For: actors.None, What: "3F0", Busy: true}
		}
		for k := range 10 {
			s.Sent = append(s.Sent, host.Edge{Name: "x", From: fmt.Sprintf("rank%d", r),
				To: fmt.Sprintf("rank%d", (r+k+1)%ranks), Kinds: []string{"activation", "credit"}, Way: "inside",
				Messages: int64(k), Bytes: int64(r * k)})
		}
		all = append(all, s)
	}
	return all
}
