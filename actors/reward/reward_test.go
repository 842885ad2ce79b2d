package reward

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/sandbox"
	"github.com/lfactor/lfactor/configs"
)

// of is a reward by its settings, with the defaults of those that are not given.
func of(t *testing.T, c configs.Reward) (Func, *configs.Reward) {
	t.Helper()
	if c.Column == "" {
		c.Column = "answer"
	}
	if c.Timeout == 0 {
		c.Timeout = 10
	}
	f, err := Of(&c)
	require.NoError(t, err)
	return f, &c
}

func answer(text, want string) *Answer {
	return &Answer{Prompt: "q", Text: text,
		Record: map[string]json.RawMessage{"answer": json.RawMessage(want)}}
}

// TestHere: rewards that are computed in this process have the time that they take, one after another; settings of
// those that are asked are refused.
func TestHere(t *testing.T) {
	var busy atomic.Int32
	Register(Kind{Name: "here", Here: true, New: func(*configs.Reward) (Func, error) {
		return func(ctx context.Context, _ *Answer) (float64, error) {
			_, bounded := ctx.Deadline()
			if n := busy.Add(1); n != 1 || bounded {
				return 0, fmt.Errorf("%d at once, bounded %t", n, bounded)
			}
			runtime.Gosched()
			busy.Add(-1)
			return 1, nil
		}, nil
	}})
	f, c := of(t, configs.Reward{Kind: "here", Parallel: 4, Timeout: 10})
	for _, r := range Each(context.Background(), f, c, make([]Answer, 50)) {
		require.NoError(t, r.Err)
	}
	var cfg configs.Config
	cfg.Run.Reward = configs.Reward{Kind: "here", Timeout: 3}
	said := map[string]bool{}
	check(&cfg, func(key, _, _ string) { said[key] = true })
	require.True(t, said["reward.timeout"])
}

// TestKinds: what each kind makes of answers.
func TestKinds(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q asked
		if json.NewDecoder(r.Body).Decode(&q) != nil || q.Answer == "bad" {
			http.Error(w, "no", http.StatusTeapot)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]int{"reward": len(q.Answer)}) // the client is here
	}))
	defer service.Close()
	for _, c := range []struct {
		reward     configs.Reward
		text, want string
		value      float64
		fault      string
	}{
		{configs.Reward{Kind: "exact"}, " 42\n", `"42"`, 1, ""},
		{configs.Reward{Kind: "exact"}, "42", `42`, 1, ""},
		{configs.Reward{Kind: "exact"}, "43", `"42"`, 0, ""},
		{configs.Reward{Kind: "exact", Column: "other"}, "43", `"42"`, 0, `no column "other"`},
		{configs.Reward{Kind: "regex", Pattern: `^\d+$`}, "43", `0`, 1, ""},
		{configs.Reward{Kind: "regex", Pattern: `^\d+$`}, "x43", `0`, 0, ""},
		{configs.Reward{Kind: "math"}, "so it is 1,000.50 $", `"#### 1000.5"`, 1, ""},
		{configs.Reward{Kind: "math"}, `\boxed{1/2} or 7`, `"0.5"`, 1, ""},
		{configs.Reward{Kind: "math"}, "#### -3", `-3`, 1, ""},
		{configs.Reward{Kind: "math"}, "10 or 11.", `10`, 0, ""},
		{configs.Reward{Kind: "math"}, "none", `10`, 0, ""},
		{configs.Reward{Kind: "math"}, "1/0", `1`, 0, ""},
		{configs.Reward{Kind: "command", Command: []string{"sh", "-c", `grep -c '"answer":"yes"'`}}, "yes",
			`0`, 1, ""},
		{configs.Reward{Kind: "command", Command: []string{"sh", "-c", "echo oops >&2; exit 3"}}, "x", `0`,
			0, "oops"},
		{configs.Reward{Kind: "command", Command: []string{"echo", "1_0"}}, "x", `0`, 0, `says "1_0"`},
		{configs.Reward{Kind: "command", Command: []string{"echo", "0x1p4"}}, "x", `0`, 0, `and no number`},
		{configs.Reward{Kind: "command", Command: []string{"echo", "1e1"}}, "x", `0`, 10, ""},
		{configs.Reward{Kind: "command", Command: []string{"echo", "much"}}, "x", `0`, 0, `says "much"`},
		{configs.Reward{Kind: "schema", Schema: `{"required": ["x"]}`}, ` {"y": 1, "x": 2}`, `0`, 1, ""},
		{configs.Reward{Kind: "schema", Schema: `{"required": ["x"]}`}, `{"y": 1}`, `0`, 0, ""},
		{configs.Reward{Kind: "schema"}, `[3]`, `{"type": "array"}`, 1, ""},
		{configs.Reward{Kind: "schema"}, `[3]`, `{"colour": 3}`, 0, "#/colour is not supported"},
		{configs.Reward{Kind: "http", URL: service.URL}, "four", `0`, 4, ""},
		{configs.Reward{Kind: "http", URL: service.URL}, "bad", `0`, 0, "418"},
	} {
		f, _ := of(t, c.reward)
		got, err := f(context.Background(), answer(c.text, c.want))
		if c.fault != "" {
			require.ErrorContains(t, err, c.fault, "%+v %s", c.reward, c.text)
			continue
		}
		require.NoError(t, err, "%+v %s", c.reward, c.text)
		require.Equal(t, c.value, got, "%+v %s against %s", c.reward, c.text, c.want)
	}
	for _, c := range []configs.Reward{{Kind: "none"}, {Kind: "regex", Pattern: "("}, {Kind: "command"},
		{Kind: "schema", Schema: "{"}, {Kind: "schema", Schema: "{}", Column: "x"},
		{Kind: "http", URL: "ftp://x"}, {Kind: "command", Command: []string{"true"}, Memory: 2}} {
		_, err := Of(&c)
		require.Error(t, err, "%+v", c)
	}
}

// TestEach: rewards that hang, panic or are no numbers are faults of their answers alone.
func TestEach(t *testing.T) {
	f := func(ctx context.Context, a *Answer) (float64, error) {
		switch a.Text {
		case "hangs":
			<-ctx.Done()
			return 0, ctx.Err()
		case "deaf":
			select {} // whatever its context says
		case "panics":
			panic("oh")
		case "nan":
			return math.NaN(), nil
		case "inf":
			return math.Inf(-1), nil
		case "huge":
			return -1e200, nil
		}
		return 1, nil
	}
	var answers []Answer
	texts := []string{"a", "hangs", "b", "panics", "nan", "deaf", "c", "inf", "huge"}
	for _, s := range texts {
		answers = append(answers, Answer{Text: s})
	}
	got := Each(context.Background(), f, &configs.Reward{Timeout: 0.05, Parallel: 3}, answers)
	for i, why := range []string{"", "longer than reward.timeout", "", "panicked: oh", "is NaN",
		"longer than reward.timeout", "", "the reward is -Inf", "the reward is -1e+200, and no number from -1e+18"} {
		if why == "" {
			require.Equal(t, Result{Value: 1}, got[i], texts[i])
		} else {
			require.ErrorContains(t, got[i].Err, why, texts[i])
		}
	}
}

// TestCode: programs are judged by their tests, in a sandbox: those that fail, end themselves before, do
// not end or reach out have 0; a command in a sandbox gives its number, and reaches no file.
func TestCode(t *testing.T) {
	if err := sandbox.Check(); err != nil {
		t.Skip(err) // the machine's matter, said at the start of a run
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	code, c := of(t, configs.Reward{Kind: "code", Memory: 0.5, Timeout: 20})
	c.Parallel = 2
	tests := `"assert double(4) == 8\nassert double(\"a\") == \"aa\""`
	var answers []Answer
	programs := map[string]float64{"So:\n```python\ndef double(x):\n    return 2 * x\n```\nDone.": 1,
		"def double(x): return 2 * x": 1, "def double(x): return x": 0, "import sys; sys.exit(0)": 0,
		"no code":                            0,
		"import os\nprint('x')\nos._exit(0)": 0,
		"import os, sys\nf = sys._getframe()\nwhile f:\n  for c in f.f_code.co_consts:\n    if len(str(c)) > 20: print(c)\n" +
			"  f = f.f_back\nsys.stdout.flush()\nos._exit(0)": 0,
		// what it can see is not what its tests end with
		"import os\ndef double(x): os._exit(0)": 0,
		"import os\nfor f in range(64):\n  try: os.write(f, b'x' * 32)\n  except OSError: pass\nos._exit(0)": 0,
		"import os, sys\nos.write(2, b'sandbox: x')\nos._exit(125)":                                          0,
		"import socket\nsocket.socket(socket.AF_UNIX)\ndef double(x): return 2 * x":                          0,
		"def double(x): return 2 * x\nif 0: \\":                                                              0,
		"def double(x):\n  open('/etc/lfactor-test', 'w')\n  return 2 * x":                                   0,
		"def double(x): return bytes(10**10)":                                                                0}
	for text := range programs { // in no order: each is judged by itself
		answers = append(answers, *answer(text, tests))
	}
	for i, r := range Each(context.Background(), code, c, answers) {
		require.NoError(t, r.Err)
		require.Equal(t, programs[answers[i].Text], r.Value, answers[i].Text)
	}
	code, c = of(t, configs.Reward{Kind: "code", Memory: 0.5, Timeout: 1})
	got := Each(context.Background(), code, c, []Answer{*answer("while True: pass", tests)})
	require.Equal(t, []Result{{}}, got)
	boxed, _ := of(t, configs.Reward{Kind: "command", Sandbox: true, Memory: 0.5, Command: []string{"sh",
		"-c",
		"echo x > /etc/lfactor-test || grep -c yes"}})
	v, err := boxed(context.Background(), answer("yes", `0`))
	require.NoError(t, err)
	require.Equal(t, 1.0, v)
	require.NoFileExists(t, "/etc/lfactor-test")
}

// TestJudgeHere: the page's judge, a script in the run's folder that is named from there, runs in a sandbox, and what
// is the sandbox's is told from what a program says; a script that is not there is found before anything is judged.
func TestJudgeHere(t *testing.T) {
	if err := sandbox.Check(); err != nil {
		t.Skip(err) // likewise
	}
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.WriteFile("judge.sh", []byte("grep -c yes\n"), 0o600))
	c := configs.Reward{Kind: "command", Sandbox: true, Memory: 0.5, Command: []string{"sh", "judge.sh"}}
	f, settings := of(t, c)
	require.NoError(t, Try(t.Context(),
		&configs.Config{Run: configs.Run{Reward: *settings}})) // grep fails for an answer of nothing, which is its right
	v, err := f(t.Context(), answer("yes", `0`))
	require.NoError(t, err)
	require.Equal(t, 1.0, v)
	_, settings = of(t, configs.Reward{Kind: "command", Sandbox: true, Memory: 0.5, Command: []string{"sh",
		"none.sh"}})
	require.ErrorContains(t, Try(t.Context(), &configs.Config{Run: configs.Run{Reward: *settings}}),
		"the command cannot run: ")
	_, settings = of(t, configs.Reward{Kind: "code", Memory: 0.5})
	if _, err := exec.LookPath("python3"); err == nil {
		require.NoError(t, Try(t.Context(), &configs.Config{Run: configs.Run{Reward: *settings}}))
	}
}

// TestColumns: reward.column names a column, or a key in one; verl's place of the right answer stands in for "answer".
func TestColumns(t *testing.T) {
	for _, c := range []struct{ record, column, want string }{
		{`{"answer": "4", "reward_model": {"ground_truth": "5"}}`, "answer", "4"},
		{`{"reward_model": {"style": "rule", "ground_truth": "5"}}`, "answer", "5"},
		{`{"reward_model": {"style": "rule", "ground_truth": 5}}`, "reward_model.ground_truth", "5"},
		{`{"extra_info": {"split": {"n": "x"}}}`, "extra_info.split.n", "x"},
		{`{"a.b": "whole", "a": {"b": "part"}}`, "a.b", "whole"},
	} {
		a := &Answer{}
		require.NoError(t, json.Unmarshal([]byte(c.record), &a.Record))
		text, err := a.Column(c.column)
		require.NoError(t, err, c.record)
		require.Equal(t, c.want, text, c.record)
	}
	_, err := (&Answer{}).Column("reward_model.ground_truth")
	require.ErrorContains(t, err, `no column "reward_model.ground_truth"`)
}
