package noise

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var long = flag.Bool("long", false, "hold each key of each scheduler to diffusers")

// alteredSteps is a scheduler of diffusers with one key altered, step by step.
type alteredSteps struct {
	Key, Value, Error string
	Config            json.RawMessage
	Steps             int
	Extra             struct{ Mu float64 }
	Scale             float64
	Times, Sigmas     []float64
	Bars              []float64 // of training, from noise to data, one of 37
	X                 [][]float64
}

// TestSchedulerKeys: each key of each scheduler's configuration, altered alone, moves times, levels and samples as
// diffusers' does, or is refused. It wants Python with diffusers, named by LFACTOR_PYTHON or python3.
func TestSchedulerKeys(t *testing.T) {
	if !*long {
		t.Skip("each key of each scheduler is held to diffusers with -long")
	}
	python := os.Getenv("LFACTOR_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import diffusers, scipy").Run(); err != nil {
		t.Skipf("%s cannot import diffusers and scipy (%v): no key is compared", python, err)
	}
	path := filepath.Join(t.TempDir(), "steps.json")
	said, err := exec.Command(python, append([]string{"../../bench/golden/noise_keys.py", path}, Classes()...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	text, err := os.ReadFile(path)
	var g struct {
		Start      []float32
		Out, Noise [][]float32
		Cases      []alteredSteps
	}
	if err == nil {
		err = json.Unmarshal(text, &g)
	}
	if err != nil {
		t.Fatal(err)
	}
	counts, base := map[string]int{}, ""
	for _, c := range g.Cases {
		if now := fmt.Sprint(c.Times, c.Sigmas, c.Scale, c.X); c.Key == "" {
			base = now
		} else if why := c.differs(g.Start, g.Out, g.Noise); why == "" && now == base {
			counts["moves nothing, as in diffusers"]++
		} else if why == "" {
			counts["moves as in diffusers"]++
		} else if strings.HasPrefix(why, "refused") {
			if counts[why[:strings.Index(why, ":")]]++; testing.Verbose() {
				t.Logf("%s = %s is %s", c.Key, c.Value, why)
			}
		} else if c.Error != "" {
			counts["read, where diffusers cannot run it"]++
		} else {
			t.Errorf("%s = %s: %s\n%s", c.Key, c.Value, why, c.Config)
		}
	}
	t.Log(strings.TrimSpace(string(said)), counts)
}

// levels holds what a scheduler that only trains is trained under.
func (c *alteredSteps) levels(s Scheduler, why string) string {
	l, err := s.Levels()
	if err != nil || c.Bars == nil {
		return why
	}
	for i, bar := range c.Bars {
		if at := l.Table()[37*i]; math.Abs(float64(at.Alpha)*float64(at.Alpha)-bar) > 1e-5 {
			return fmt.Sprintf("ᾱ %g at %d, want %g", at.Alpha*at.Alpha, 37*i, bar)
		}
	}
	return "refused to sample, levels of training as in diffusers: "
}

// differs tells how a scheduler differs from diffusers', "" for not.
func (c *alteredSteps) differs(start []float32, out, noise [][]float32) string {
	s, err := Read("scheduler_config.json", c.Config)
	if err != nil {
		return "refused: " + err.Error()
	}
	p, err := s.Sampler(Options{Steps: max(c.Steps, 1), Mu: c.Extra.Mu})
	if err != nil {
		return c.levels(s, "refused to sample: "+err.Error())
	}
	if c.Error != "" {
		return c.Error
	}
	if d := near(p.Times, c.Times); d > 1e-5 && !((c.Key == "use_exponential_sigmas" || c.Key == "use_beta_sigmas") &&
		d < 1.5/1000) { // of which the whole part is taken: the last bit of exp decides
		return fmt.Sprintf("times %v, want %v", p.Times, c.Times)
	}
	if d := near(p.Sigmas, c.Sigmas); p.Sigmas != nil && d > 1e-5 {
		return fmt.Sprintf("levels %v, want %v", p.Sigmas, c.Sigmas)
	}
	if math.Abs(float64(p.Scale)-c.Scale) > 1e-5*c.Scale {
		return fmt.Sprintf("noise begins at %g, want %g", p.Scale, c.Scale)
	}
	st := p.Begin(start)
	for i, want := range c.X {
		o := out[i]
		if p.width != nil {
			o = append(append([]float32{}, o...), clamp(out[i+1], 1)...)
		}
		if st, err = p.Step(st, o, noise[i]); err != nil {
			return err.Error()
		}
		if d := near(st.X, want); !(d < 1e-3) {
			return fmt.Sprintf("step %d: %v, want %v", i, st.X, want)
		}
	}
	return ""
}
