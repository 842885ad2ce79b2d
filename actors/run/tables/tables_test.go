package tables

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/actors/run/record"
)

// night writes what a run of 2,880 steps of ten seconds leaves, from 22:00 to 06:00, as the answers of
// docs/telemetry.md know it: from 02:00 on rank 2 waits for rank 1, steps give fewer tokens, and the loss jumped once.
func night(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	begin := time.Date(2026, 3, 1, 22, 0, 0, 0, time.UTC)
	at := func(step int) float64 { return float64(begin.Unix() + int64(10*step)) }
	write := func(name string, each func(step int) []any) {
		f, err := os.Create(filepath.Join(dir, name))
		require.NoError(t, err)
		enc := json.NewEncoder(f)
		for step := 1; step <= 2880; step++ {
			for _, v := range each(step) {
				require.NoError(t, enc.Encode(v))
			}
		}
		require.NoError(t, f.Close())
	}
	late := func(step int) bool { return step > 1440 }
	write(run.EdgesName, func(step int) []any {
		w := record.EdgeWindow{Time: at(step), Seconds: 10, Step: int64(step), Looks: 20,
			Edges: []record.EdgeUse{
				{From: "rank0", To: "rank1", Messages: 8, Bytes: 800, Waits: 2, Longest: .1},
				{From: "rank1", To: "rank2", Messages: 8, Bytes: 800, Waits: 2, Longest: .1}},
			Actors: []record.ActorUse{{Actor: "rank1", Busy: 15, Waits: 2, Memory: 1 << 20}}}
		if late(step) {
			w.Edges[1].Waits = 12
		}
		return []any{w}
	})
	write("metrics.jsonl", func(step int) []any {
		m := run.Metrics{Step: int64(step), Loss: 2 + .02*float64(step%2), GradNorm: 1, TokensSec: 1000,
			Seconds:  10,
			DataWait: .1, PeakBytes: 1 << 20, Scale: 1, Slowest: 2}
		if late(step) {
			m.TokensSec = 650
		}
		if step > 2000 {
			m.TokensSec = 666.6
		}
		if step == 1700 {
			m.Loss, m.GradNorm = 9, 50
		}
		if step == 1500 {
			m.Loss, m.Skipped = -1, true
		}
		if step == 1 {
			m.Experts = []run.ExpertUse{{Block: 3, Rows: []float64{5, 7}, Dropped: 1, Entropy: .5}}
		}
		return []any{m}
	})
	write("log.jsonl", func(step int) (out []any) {
		say := func(later float64, msg string, step *int) {
			out = append(out, map[string]any{"level": "info", "ts": at(1) + later, "msg": msg, "step": step})
		}
		if step%300 == 0 {
			say(float64(10*step), "checkpoint queued", &step)
			took := 1.5
			if step == 1500 {
				took = 7
			}
			say(float64(10*step)+took, fmt.Sprintf("saved step %d: durable", step), nil)
		}
		if step == 1800 {
			say(18000, "recovered after 0.75 s: all ranks hold step 1799, from copies in memory; 1 step(s) are taken again", nil)
			say(18001, "eval  step 1800  loss 2.0000", nil)
		}
		return out
	})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "trace.json"), []byte(trace), 0o600))
	return dir
}

// trace is one of a run that was ended in the middle of a line.
const trace = `[
{"ph":"M","name":"thread_name","pid":0,"tid":4,"args":{"name":"rank 2 (pp 1 dp 0)"}},
{"ph":"X","name":"1F0.0","cat":"F","pid":0,"tid":4,"ts":2000000,"dur":500000,"args":{"step":3}},
{"ph":"X","name":"1F1.0","cat":"F","pid":0,"ti`

// rows reads a table back.
func rows[R any](t *testing.T, dir, name string) []R {
	t.Helper()
	out, err := parquet.ReadFile[R](filepath.Join(dir, name+".parquet"))
	require.NoError(t, err)
	return out
}

// TestTables: every line of a run is a row, with its values; what a run was writing when it was ended is left out.
func TestTables(t *testing.T) {
	dir, out := night(t), t.TempDir()
	f, err := os.OpenFile(filepath.Join(dir, "metrics.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"step":2881,"lo`)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	made, err := Make(dir, out)
	require.NoError(t, err)
	counts := map[string]int64{}
	for _, m := range made {
		counts[m.Name] = m.Rows
	}
	require.Equal(t, map[string]int64{"metrics": 2880, "experts": 2, "events": 19, "edges": 5760,
		"actors": 2880, "jobs": 1,
		"messages": 0}, counts)
	steps := rows[Metric](t, out, "metrics")
	require.Equal(t, 9., *steps[1699].Loss)
	require.Nil(t, steps[1499].Loss, "it was no number")
	require.True(t, steps[1499].Skipped)
	require.Equal(t, []Expert{{1, 3, 0, 5, 1, .5}, {1, 3, 1, 7, 1, .5}}, rows[Expert](t, out, "experts"))
	e := rows[Edge](t, out, "edges")[5759]
	require.Equal(t, Edge{time.Date(2026, 3, 2, 6, 0, 0, 0, time.UTC), 10, 2880, "rank1", "rank2", 8, 800,
		20, 12, .1}, e)
	require.Equal(t, []Job{{"rank2", 0, "1F0.0", "F", 3, 2, .5}}, rows[Job](t, out, "jobs"))
	for _, x := range rows[Event](t, out, "events") {
		if x.Kind == "recovered" {
			require.Equal(t, .75, *x.Value)
			require.Equal(t, int64(1799), *x.Step)
		}
	}

	require.NoError(t, os.WriteFile(filepath.Join(dir, "metrics.jsonl"),
		[]byte("{\"step\":1}\nno\n{\"step\":2}\n"), 0o600))
	_, err = Make(dir, out)
	require.ErrorContains(t, err, "metrics.jsonl:2: ")
	require.Len(t, rows[Metric](t, out, "metrics"), 2880, "the table that was there stays whole")
	_, err = Make(t.TempDir(), out)
	require.ErrorContains(t, err, "no run has written here")
}

// TestKinds: what a run says is told apart.
func TestKinds(t *testing.T) {
	for msg, want := range map[string]string{"! slow: rank 1 …": "slow", "eval": "eval",
		"eval  step 3  loss 2":          "",
		"! no step for 30 s, because …": "stalled", "stopped on request after step 3": "stopped",
		"logs    run":               "said",
		"! metrics are not written": "warning", "saved step 4: durable": "durable"} {
		line, err := json.Marshal(map[string]any{"msg": msg, "level": "info", "ts": 1.5})
		require.NoError(t, err)
		e, err := ParseEvent(line)
		require.NoError(t, err)
		require.Equal(t, want, e.Kind, msg)
	}
}

const page = "../../../docs/telemetry.md"

// TestColumns: docs/telemetry.md names each table's columns, in their order.
func TestColumns(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	dir := t.TempDir()
	made, err := Make(night(t), dir)
	require.NoError(t, err)
	for _, m := range made {
		f, err := os.Open(m.File)
		require.NoError(t, err)
		s, err := f.Stat()
		require.NoError(t, err)
		p, err := parquet.OpenFile(f, s.Size())
		require.NoError(t, err)
		var columns []string
		for _, c := range p.Schema().Columns() {
			columns = append(columns, "`"+c[0]+"`")
		}
		row := regexp.MustCompile("(?m)^\\| `" + m.Name + "` \\|.*$").FindString(string(text))
		require.True(t, strings.HasSuffix(row, "| "+strings.Join(columns, ", ")+" |"), "%s: %s, want %v",
			page, row, columns)
		require.NoError(t, f.Close())
	}
}

// TestQueries runs the queries of docs/telemetry.md, which wants Python with duckdb.
func TestQueries(t *testing.T) {
	python := os.Getenv("LFACTOR_PYTHON")
	if python == "" || exec.Command(python, "-c", "import duckdb").Run() != nil {
		t.Skip("wants LFACTOR_PYTHON, a Python that has duckdb")
	}
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	dir := t.TempDir()
	_, err = Make(night(t), dir)
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```\n\n```\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	require.Len(t, blocks, 5)
	for _, b := range blocks {
		script := fmt.Sprintf(`import duckdb, sys
con = duckdb.connect()
for t in %q.split():
    con.sql(f"CREATE VIEW {t} AS SELECT * FROM '%s/{t}.parquet'")
r = con.sql(sys.stdin.read())
print(",".join(r.columns))
for row in r.fetchall():
    print(",".join(str(x) for x in row))
`, strings.Join(Names(), " "), dir)
		c := exec.Command(python, "-c", script)
		c.Stdin = strings.NewReader(b[1])
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s\n%s", b[1], out)
		require.Equal(t, b[2], string(out), b[1])
	}
}
