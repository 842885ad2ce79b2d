package dashboard

import (
	"encoding/json"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/actors/run/tables"
)

// spokenRun is a run under way whose last rank has waited for long, with events, on hosts h0 and h1.
func spokenRun(t *testing.T) (*Server, *folder) {
	t.Helper()
	dir := t.TempDir()
	at := 100.5
	for _, l := range []struct{ level, text string }{
		{"info", "from    the beginning"},
		{"warn", "! slow: rank 1 (pp 1) in process 1 computes 4.6 times as long as it did before"},
		{"info", "! rank 0 lost: process 1 (pid 487 on h9) was killed by signal 9 (killed); it is started again"},
		{"info", "saved step 2"},
		{"error", "loader 0.1 reads <script>alert(1)</script> of https://user:secret@host/x"},
		{"info", "recovered after 0.12 s: all ranks hold step 2"},
	} {
		add(t, dir, "log.jsonl", map[string]any{"level": l.level, "ts": at, "msg": l.text})
		at++
	}
	s := New(8265, Options{Dirs: []string{dir}})
	f := s.runs[0]
	f.where = func(actor string) string { return "h" + actor[len(actor)-1:] }
	all := statuses(2)
	all[0].Wait.For, all[1].Age = 99, 20*time.Second
	all[1].Wait.For = all[2].Ref
	f.actors = func() ([]host.Status, []host.Silent, error) { return all, nil, nil }
	f.recent = func() ([]record.Job, error) {
		return []record.Job{
			{Actor: "rank0", Name: "0F0.0", Kind: "F", Step: 1, Start: 200, End: 200.010},
			{Actor: "rank0", Name: "0F1.0", Kind: "F", Step: 1, Start: 200.010, End: 200.025},
			{Actor: "rank0", Name: "write", Step: 1, Start: 200.030, End: 200.040},
			{Actor: "rank0", Name: "0F0.0", Kind: "F", Step: 2, Start: 201, End: 201.010},
		}, nil
	}
	return s, f
}

// TestLogs: what actors have said is told by actor, host and level, with the jobs of each step that an actor
// is through with, and what each does now.
func TestLogs(t *testing.T) {
	s, f := spokenRun(t)
	cookie := enter(t, s, Viewer)
	ask := func(q string) spokenNow { return get[spokenNow](t, s, cookie, "/api/runs/0/logs"+q) }
	n := ask("")
	var who [][3]string
	for _, l := range n.Lines {
		who = append(who, [3]string{l.Actor, l.Host, l.Level})
	}
	require.Equal(t, [][3]string{{"run", "hn", "info"}, {"rank1", "h1", "warn"}, {"rank0", "h9", "warn"},
		{"saver", "hr", "info"}, {"loader0.1", "h1", "error"}, {"coordinator", "hr", "info"},
		{"rank0", "h0", "info"}}, who)
	require.Equal(t, "3 jobs, 35 ms at work within 40 ms: 2 F 25 ms, 1 write 10 ms", n.Lines[6].Text)
	require.NotContains(t, n.Lines[4].Text, "secret")
	require.Contains(t, n.Lines[4].Text, "<script>", "the page takes it as text")
	require.Equal(t, []present{
		{Name: "coordinator", Host: "hr", State: "wait", Text: "Ready of one that does not answer",
			Level: "info"},
		{Name: "rank0", Where: "pp 0 dp 0", Host: "h0", State: "wait", Text: "activation 1F0 of rank1",
			Age:   20,
			Level: "warn"},
		{Name: "rank1", Where: "pp 1 dp 0", Host: "h1", State: "busy", Text: "3F0", Level: "info"},
	}, n.Now)
	for q, want := range map[string]int{"?actor=rank0": 2, "?host=h1": 2, "?level=warn": 3,
		"?level=error":            1,
		"?actor=rank0&level=warn": 1, "?most=2": 2, "?most=-1": 0, "?actor=" + url.QueryEscape("<b>"): 0} {
		got := ask(q)
		require.Len(t, got.Lines, want, q)
		require.Len(t, got.Now, 3, q)
	}
	require.Equal(t, 5, ask("?most=2").Before)
	for _, q := range []string{"?level=loud", "?most=x"} {
		require.Equal(t, 422, call(s, "GET", "/api/runs/0/logs"+q, cookie, nil).StatusCode, q)
	}
	require.Equal(t, 401, call(s, "GET", "/api/runs/0/logs", "", nil).StatusCode)

	f.recent = func() ([]record.Job, error) { return nil, fmt.Errorf("x: %w", record.ErrNotRunning) }
	f.recalled = time.Time{}
	require.Len(t, ask("").Lines, 6, "a run that is over and has left no trace")
}

// TestLogsBounded: of a run with many ranks and events the newest lines are told, and no more.
func TestLogsBounded(t *testing.T) {
	s, f := spokenRun(t)
	f.recent = func() (jobs []record.Job, err error) {
		for r := range 3000 {
			for step := range int64(4) {
				jobs = append(jobs, record.Job{Actor: fmt.Sprintf("rank%d", r), Kind: "F", Step: step,
					Start: 200 + float64(step), End: 200.5 + float64(step)})
			}
		}
		return jobs, nil
	}
	n := get[spokenNow](t, s, enter(t, s, Viewer), "/api/runs/0/logs?most=1000000")
	require.Len(t, n.Lines, linesMax)
	require.Equal(t, 6+3*3000-linesMax, n.Before)
	h := heard{}
	var told spokenNow
	text := f.logsNews(nil, 0, &h)
	require.NoError(t, json.Unmarshal(text[len("event: logs\ndata: "):], &told))
	require.Len(t, told.Lines, linesFirst)
}

// TestLogsStream: a page hears each line once: events as they are said, and a step's jobs once it is over.
func TestLogsStream(t *testing.T) {
	s, f := spokenRun(t)
	next := listen(t, s, "/api/stream?runs=&logs=0")
	expect := func() (n spokenNow) {
		name, data := next()
		require.Equal(t, "logs", name)
		require.NotContains(t, data, "<script>", "JSON escapes it")
		require.NoError(t, json.Unmarshal([]byte(data), &n))
		return n
	}
	require.Len(t, expect().Lines, 7)
	add(t, f.dir, "log.jsonl", map[string]any{"level": "warn", "ts": 300.5, "msg": "! no step for 9 s"})
	var n spokenNow
	for len(n.Lines) == 0 {
		n = expect()
	}
	require.Len(t, n.Lines, 1)
	require.Equal(t, spoken{Time: 300.5, Actor: "run", Host: "hn", Level: "warn", Kind: "stalled",
		Text: "! no step for 9 s"}, n.Lines[0])
	f.recalling.Lock()
	f.recent = func() ([]record.Job, error) {
		return []record.Job{
			{Actor: "rank0", Kind: "F", Step: 1, Start: 200, End: 200.040},
			{Actor: "rank0", Kind: "F", Step: 2, Start: 201, End: 201.010},
			{Actor: "rank0", Kind: "F", Step: 3, Start: 202, End: 202.010},
		}, nil
	}
	f.recalling.Unlock()
	for n = expect(); len(n.Lines) == 0; n = expect() {
	}
	require.Len(t, n.Lines, 1, "the first step was told, and the third is under way")
	require.Equal(t, int64(2), *n.Lines[0].Step)
}

// TestSpeaker: whom an event is about.
func TestSpeaker(t *testing.T) {
	for text, want := range map[string][2]string{
		"host h2 is slow in job 1: rank 3 (pp 1 dp 1) waits": {"rank3", "h2"},
		"Process 2 ended":           {"process2", ""},
		"loader 1.0 waits":          {"loader1.0", ""},
		"crank 7 and frank 8":       {"run", ""},
		"was killed (pid 5 on a.b)": {"run", "a.b"},
	} {
		name, at := speaker(&tables.Event{Text: text})
		require.Equal(t, want, [2]string{name, at}, text)
	}
}
