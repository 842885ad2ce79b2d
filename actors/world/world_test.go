package world

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/policies"
)

// worldEnv makes the test's program a world, which is good except for its value's first word.
const worldEnv = "LFACTOR_TEST_WORLD"

func TestMain(m *testing.M) {
	if how := os.Getenv(worldEnv); how != "" {
		if talk, ok := strings.CutPrefix(how, "talk:"); ok {
			answers(talk)
			os.Exit(0)
		}
		speak(how)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// line is a world: a place on a line, from which one goes to 0.
type line struct {
	at    float64
	seed  uint64
	steps int
}

func (l *line) Spec() Spec {
	return Spec{Name: "line", State: 1, Action: 1, Cameras: []string{"top"}, FPS: 10}
}

func (l *line) Reset(_ context.Context, seed uint64) (Scene, error) {
	*l = line{at: 1 + float64(seed%5), seed: seed}
	return l.scene(), nil
}

func (l *line) Step(_ context.Context, action []float64) (Scene, error) {
	l.at += action[0]
	l.steps++
	return l.scene(), nil
}

func (l *line) Close() error { return nil }

func (l *line) scene() Scene {
	v := media.NewImage(2, 1)
	v.Pix[0] = byte(10 * l.at)
	done := l.at < 0.5
	s := Scene{Task: "go to 0", State: []float64{l.at}, Views: []*media.Image{v}, Done: done, Success: done,
		Expert: []float64{-1}}
	if done {
		s.Reward = 1
	}
	return s
}

// speak is the program of a world that does as it is told, on episodes of seed 3 in its third step.
func speak(how string) {
	var l line
	in := bufio.NewReader(os.Stdin)
	say := func(v any) {
		b, _ := json.Marshal(v)
		fmt.Printf("%s\n", b)
	}
	once := filepath.Join(os.Getenv("LFACTOR_TEST_DIR"), "once")
	for {
		text, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var q request
		if err := json.Unmarshal(text, &q); err != nil {
			panic(err)
		}
		var c Scene
		switch {
		case q.Hello == Protocol && how == "mute":
			select {}
		case q.Hello == Protocol:
			say(l.Spec())
			continue
		case q.Reset != nil:
			c, _ = l.Reset(context.Background(), q.Reset.Seed)
			if how == "unsteady" {
				c.State[0] += float64(time.Now().UnixNano() % 1e6)
			}
		case q.Step != nil:
			c, _ = l.Step(context.Background(), q.Step.Action)
		default:
			return
		}
		r := map[string]any{"task": c.Task, "state": c.State, "reward": c.Reward, "done": c.Done,
			"success": c.Success,
			"expert":  c.Expert, "images": map[string]any{"top": map[string]any{"height": 1, "width": 2,
				"pixels": c.Views[0].Pix[:6]}}}
		if l.seed == 3 && l.steps == 3 {
			misbehave(how, once, r)
		}
		say(r)
	}
}

// misbehave does what no world should.
func misbehave(how, once string, r map[string]any) {
	if how == "once" { // in the first of its worlds alone
		if _, err := os.Stat(once); err == nil {
			return
		}
		_ = os.WriteFile(once, nil, 0o644)
		how = "dies"
	}
	switch how {
	case "dies":
		fmt.Fprintln(os.Stderr, "motor 3 is hot")
		os.Exit(7)
	case "hangs":
		select {}
	case "short":
		r["state"] = []float64{}
	case "talks":
		fmt.Println("hello there")
	case "half":
		fmt.Print(`{"task": "x"`)
		os.Exit(0)
	case "blind":
		delete(r, "images")
	case "says":
		r["error"] = "the table fell over"
	case "more":
		r["colour"] = 3
	case "lacks":
		delete(r, "reward")
	case "null":
		r["done"] = nil
	case "twice": // in one piece, so that the second lies there when the next is asked
		b, _ := json.Marshal(r)
		fmt.Printf("%s\n%[1]s\n", b)
	case "pixels":
		r["images"] = map[string]any{"top": map[string]any{"height": 1, "width": 2, "pixels": []byte{1}}}
	}
}

// walker is a policy that goes left by 1, or stands.
type walker struct{ by float64 }

func (w walker) Abilities() policies.Abilities {
	return policies.Abilities{Numbers: 1, Width: 1, Cameras: []string{"observation.images.top"}, Steps: 2}
}

func (w walker) Act(robots []policies.Seen) ([][][]float64, error) {
	out := make([][][]float64, len(robots))
	for i, r := range robots {
		if r.Views[0].Pix[0] != byte(10*r.State[0]) {
			return nil, fmt.Errorf("a view is of another state")
		}
		for range 4 {
			out[i] = append(out[i], []float64{w.by})
		}
	}
	return out, nil
}

// self is the test's own program as a world.
func self(t *testing.T, how string) func(context.Context) (World, error) {
	t.Setenv(worldEnv, how)
	t.Setenv("LFACTOR_TEST_DIR", t.TempDir())
	program, err := os.Executable()
	require.NoError(t, err)
	return func(ctx context.Context) (World, error) { return Start(ctx, []string{program}, 4*time.Minute) }
}

// impatient is a world that is not waited for long in the third step of seed 3, the one that hangs.
type impatient struct {
	*Command
	seed  uint64
	steps int
}

func (w *impatient) Reset(ctx context.Context, seed uint64) (Scene, error) {
	w.seed, w.steps = seed, 0
	return w.Command.Reset(ctx, seed)
}

func (w *impatient) Step(ctx context.Context, action []float64) (Scene, error) {
	if w.steps++; w.seed == 3 && w.steps == 3 {
		w.deadline = 10 * time.Millisecond
	}
	return w.Command.Step(ctx, action)
}

// TestWorlds: a world in this program and one that is a command give the same episodes, for every number of
// worlds at once and of actions carried out; what an expert would have done is recorded, and of a policy
// without success nothing is where there is no expert.
func TestWorlds(t *testing.T) {
	inside := func(context.Context) (World, error) { return &line{}, nil }
	r := Rolling{Episodes: 10, Worlds: 1, Seed: 2, Executed: 2, Most: 50, Keep: true, Make: inside}
	want, err := Roll(context.Background(), walker{-1}, r)
	require.NoError(t, err)
	require.Equal(t, 1.0, want.Rate)
	require.Equal(t, 3, want.Episodes[0].Steps)
	require.Equal(t, 1.0, want.Reward)
	for _, v := range []Rolling{{Worlds: 3, Executed: 2, Make: inside}, {Worlds: 4, Make: self(t, "good")}} {
		v.Episodes, v.Seed, v.Most, v.Keep = 10, 2, 50, true
		got, err := Roll(context.Background(), walker{-1}, v)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	all, corrected, err := Corrected(want.Spec, want.Episodes)
	require.NoError(t, err)
	require.True(t, corrected)
	require.Len(t, all, 10)
	require.Equal(t, []float32{3}, all[0].Frames[0].State)
	require.Equal(t, []float32{-1}, all[0].Frames[0].Action)

	r.Most = 5
	stood, err := Roll(context.Background(), walker{0}, r)
	require.NoError(t, err)
	require.Zero(t, stood.Rate)
	require.Equal(t, 5.0, stood.Steps)
	for _, e := range stood.Episodes {
		for i := range e.Scenes {
			e.Scenes[i].Expert = nil
		}
	}
	_, _, err = Corrected(stood.Spec, stood.Episodes)
	require.ErrorContains(t, err, "none succeeded")
}

// TestFaultyWorlds: a world that dies, hangs or lies loses its episode, which begins again and is set aside
// with what happened, while the others end as without it; one fault is got over.
func TestFaultyWorlds(t *testing.T) {
	for how, why := range map[string]string{"dies": "motor 3 is hot", "hangs": "no answer within",
		"short": "state has 0",
		"talks": "hello there", "half": "it ended", "blind": `lacks "top"`, "says": "the table fell over",
		"more": "unknown field", "pixels": "1 bytes for 2 by 1", "lacks": "no reward",
		"null": "no done", "twice": "answers a request twice"} {
		t.Run(how, func(t *testing.T) {
			make := self(t, how)
			if how == "hangs" {
				patient := make
				make = func(ctx context.Context) (World, error) {
					w, err := patient(ctx)
					if err != nil {
						return nil, err
					}
					return &impatient{Command: w.(*Command)}, nil
				}
			}
			got, err := Roll(context.Background(), walker{-1}, Rolling{Episodes: 4, Worlds: 2, Tries: 2,
				Most: 50, Make: make})
			require.NoError(t, err)
			require.Equal(t, 3, got.Counted)
			require.Equal(t, 1.0, got.Rate)
			lost := got.Lost()
			require.Len(t, lost, 1)
			require.Equal(t, uint64(3), lost[0].Seed)
			require.Len(t, lost[0].Faults, 2)
			require.Contains(t, lost[0].Faults[1].Why, why)
		})
	}
	good, err := Roll(context.Background(), walker{-1}, Rolling{Episodes: 4, Make: self(t, "good"),
		Keep: true})
	require.NoError(t, err)
	got, err := Roll(context.Background(), walker{-1}, Rolling{Episodes: 4, Make: self(t, "once"),
		Keep: true})
	require.NoError(t, err)
	require.Len(t, got.Episodes[3].Faults, 1)
	got.Episodes[3].Faults = nil
	require.Equal(t, good, got)
}

// diverges is a walker that has no action for robots at a place.
type diverges struct {
	walker
	at, says float64
}

func (d diverges) Act(robots []policies.Seen) ([][][]float64, error) {
	out, err := d.walker.Act(robots)
	for i, r := range robots {
		if r.State[0] == d.at {
			out[i][0][0] = d.says
		}
	}
	return out, err
}

// TestDivergingPolicy: a number that is none is the policy's failure: its episodes count, without success,
// and no world is blamed or begun again; the others go on.
func TestDivergingPolicy(t *testing.T) {
	for _, says := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e39} {
		for _, name := range []string{"good", "inside"} {
			r := Rolling{Episodes: 6, Worlds: 2, Most: 50, Make: self(t, "good")}
			if name == "inside" {
				r.Make = func(context.Context) (World, error) { return &line{}, nil }
			}
			got, err := Roll(context.Background(), diverges{walker{-1}, 4, says}, r)
			require.NoError(t, err)
			require.Equal(t, 6, got.Counted)
			require.Empty(t, got.Lost())
			failed := 0
			for _, e := range got.Episodes {
				require.Empty(t, e.Faults)
				require.Equal(t, e.Failure == "", e.Success, "%+v", e)
				if e.Failure != "" {
					require.Contains(t, e.Failure, "the policy fails: number 0 of action 0 is ")
					failed++
				}
			}
			require.Equal(t, failed, got.Failed)
			require.Positive(t, failed)
			require.Less(t, failed, 6)
			require.InDelta(t, float64(6-failed)/6, got.Rate, 1e-12)
		}
	}
}

// TestStrangeWorlds: what no policy can act in is refused at once, with the reason; so is a program that is
// none; and resets that differ are seen.
func TestStrangeWorlds(t *testing.T) {
	ctx := context.Background()
	_, err := Start(ctx, []string{"/nonexistent"}, time.Second)
	require.ErrorContains(t, err, "does not start")
	_, err = Start(ctx, []string{"sh", "-c", "echo no world >&2; exit 3"}, 10*time.Second)
	require.ErrorContains(t, err, "no world")
	mute := self(t, "mute")
	cut, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err = mute(cut)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	got, err := Roll(ctx, walker{-1}, Rolling{Episodes: 1, Most: 2, Make: self(t, "good")})
	require.NoError(t, err)
	require.False(t, got.Unsteady)
	w, err := self(t, "unsteady")(ctx)
	require.NoError(t, err)
	a, err := w.Reset(ctx, 1)
	require.NoError(t, err)
	b, err := w.Reset(ctx, 1)
	require.NoError(t, err)
	require.False(t, a.same(b))
	require.NoError(t, w.Close())
	_, err = w.Step(ctx, []float64{1})
	require.ErrorIs(t, err, errClosed)
	for why, can := range map[string]policies.Abilities{"state": {Numbers: 2, Width: 1},
		"action": {Numbers: 1, Width: 2},
		"camera": {Numbers: 1, Width: 1, Cameras: []string{"observation.images.wrist"}}} {
		_, err := fits(can, (&line{}).Spec())
		require.ErrorContains(t, err, why)
	}
}

// TestWilson holds the interval to its formula in Python.
func TestWilson(t *testing.T) {
	for _, v := range []struct {
		won, n    int
		low, high float64
	}{{0, 10, 0, 0.2775327998628892}, {88, 100, 0.8018790057328857, 0.9300059356298052}, {5, 5,
		0.5655175352168251, 1}} {
		got := Wilson(v.won, v.n)
		require.InDelta(t, v.low, got.Low, 1e-12)
		require.InDelta(t, v.high, got.High, 1e-12)
	}
	require.Equal(t, Interval{0, 1}, Wilson(0, 0))
}

// FuzzScene: no answer of a world makes a scene that is none of its kind, or a panic.
func FuzzScene(f *testing.F) {
	for _, s := range []string{`{"task":"x","state":[1],"images":{"top":null}}`,
		`{"task":"x","state":[1],"images":{"top":null},"reward":0,"done":false,"success":false}`,
		`{"task":"x","state":[1],"images":{"top":{"height":1,"width":1,"pixels":"AAAA"}},"expert":[2],"reward":1,"done":true}`,
		`{"error":"x"}`, `{}`, `[`, `{"task":"x","state":[1e400]}`, `null`} {
		f.Add(s)
	}
	spec := (&line{}).Spec()
	f.Fuzz(func(t *testing.T, text string) {
		s, err := readScene([]byte(text), spec)
		if err == nil {
			require.NoError(t, s.check(spec))
		}
	})
}
