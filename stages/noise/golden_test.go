package noise

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// goldens is testdata/steps.json, which bench/golden/noise.py makes with diffusers.
type goldens struct {
	Start      []float32
	Out, Noise [][]float32
	Normals    [][]float64
	Cases      []struct {
		Config json.RawMessage
		Steps  int
		Extra  struct {
			Sigmas  []float64
			Mu, Eta float64
			Churn   float64
			Clipped bool
		}
		Scale         float64
		Times, Sigmas []float64
		X             [][]float64
	}
}

func readGoldens(t *testing.T) (g goldens) {
	t.Helper()
	text, err := os.ReadFile("testdata/steps.json")
	if err == nil {
		err = json.Unmarshal(text, &g)
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// near reports how far numbers are apart, relative to the largest of those wanted.
func near(got []float32, want []float64) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	off, most := 0.0, 1e-30
	for i, w := range want {
		most, off = max(most, math.Abs(w)), max(off, math.Abs(float64(got[i])-w))
		if math.IsNaN(float64(got[i])) {
			return math.Inf(1)
		}
	}
	return off / most
}

// Every scheduler goes diffusers' way, step by step: times, levels and samples. Both are float32; what
// differs is the last bit of exp, log and pow.
func TestStepsAreDiffusers(t *testing.T) {
	t.Parallel()
	g := readGoldens(t)
	seen := map[string]bool{}
	for _, c := range g.Cases { // diffusers' parallel classes draw the same (bench/golden/noise.py holds it to that)
		for _, class := range []string{"DDIM", "DDPM"} {
			was := c.Config
			if c.Config = bytes.Replace(was, []byte(`"`+class+`Scheduler"`), []byte(`"`+class+`ParallelScheduler"`), 1); !bytes.Equal(was, c.Config) {
				g.Cases = append(g.Cases, c)
			}
			c.Config = was
		}
	}
	for n, c := range g.Cases {
		s, err := Read("scheduler_config.json", c.Config)
		if err != nil {
			t.Fatalf("case %d: %v", n, err)
		}
		seen[s.Class()] = true
		t.Run(fmt.Sprintf("%02d-%s", n, s.Class()), func(t *testing.T) {
			t.Parallel()
			p, err := s.Sampler(Options{Steps: c.Steps, Sigmas: c.Extra.Sigmas, Mu: c.Extra.Mu,
				Eta:         c.Extra.Eta,
				FromClipped: c.Extra.Clipped, Churn: Churn{S: float32(c.Extra.Churn)}})
			if err != nil {
				t.Fatalf("%s: %v", c.Config, err)
			}
			if d := near(p.Times, c.Times); d > 1e-5 {
				t.Fatalf("times %v, want %v: %g\n%s", p.Times, c.Times, d, c.Config)
			}
			if d := near(p.Sigmas, c.Sigmas); p.Sigmas != nil && d > 1e-5 {
				t.Fatalf("levels %v, want %v: %g\n%s", p.Sigmas, c.Sigmas, d, c.Config)
			}
			if d := near([]float32{p.Scale}, []float64{c.Scale}); d > 1e-6 {
				t.Errorf("noise begins at %g, want %g", p.Scale, c.Scale)
			}
			st := p.Begin(g.Start)
			for i, want := range c.X {
				out := g.Out[i]
				if p.width != nil {
					out = append(append([]float32{}, out...), clamp(g.Out[i+1], 1)...)
				}
				if st, err = p.Step(resumed(t, st), out, g.Noise[i]); err != nil {
					t.Fatal(err)
				}
				if d := near(st.X, want); d > bound(s, c.Steps) {
					t.Fatalf("step %d of %d: %v, want %v: %g\n%s", i, len(c.X), st.X, want, d, c.Config)
				}
			}
			if !p.Done(st) {
				t.Errorf("%d steps did not end the run", len(c.X))
			}
		})
	}
	for _, class := range Classes() {
		_, err := New(class).Sampler(Options{Steps: 4})
		if only := err != nil && strings.Contains(err.Error(), class+" trains, and its sampler is not there"); !only && !seen[class] {
			t.Errorf("no golden case of %s", class)
		}
	}
}

// bound is 1e-5, and 5e-5 where the reference itself loses digits in float32: Euler's step from the level of
// 4096 that zero terminal SNR begins at, UniPC's third order over 50 short steps, whose right-hand sides are
// differences of nearly equal numbers. UnCLIP's is 6e-4: diffusers takes α of its first step as 1 − (1 − α), and divides
// β of the last by 1 − ᾱ, which is the same number with four digits less.
func bound(s Scheduler, steps int) float64 {
	e, euler := s.(*Euler)
	u, unipc := s.(*UniPC)
	if s.Class() == "UnCLIPScheduler" {
		return 6e-4
	}
	if euler && e.ZeroSNR || unipc && u.Order == 3 && steps == 50 {
		return 5e-5
	}
	return 1e-5
}

// resumed is the state after it was saved and read again: it has the same bits.
func resumed(t *testing.T, s State) (out State) {
	t.Helper()
	text, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Writing what was read and reading it again gives the same text, with every key of the file.
func TestMarshalRoundTrip(t *testing.T) {
	t.Parallel()
	for _, c := range readGoldens(t).Cases {
		s, err := Read("a", c.Config)
		if err != nil {
			t.Fatal(err)
		}
		text := Marshal(s)
		again, err := Read("b", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if string(Marshal(again)) != string(text) {
			t.Errorf("%s, then %s", text, Marshal(again))
		}
		var keys map[string]any
		if err := json.Unmarshal(c.Config, &keys); err != nil {
			t.Fatal(err)
		}
		for key := range keys {
			if !strings.Contains(string(text), `"`+key+`"`) {
				t.Errorf("%s: key %s is not written", s.Class(), key)
			}
		}
	}
}

// The normal numbers are scipy's quantiles of the same hashes.
func TestNormalsAreSciPys(t *testing.T) {
	t.Parallel()
	for i, k := range []Key{{}, {Sample: 1}, {Sample: 1<<63 + 5, Draw: 7}} {
		for e, want := range readGoldens(t).Normals[i] {
			if got := k.Normal(uint64(e)); math.Abs(got-want) > 1e-13 {
				t.Errorf("%+v number %d: %v, want %v", k, e, got, want)
			}
		}
	}
	for _, u := range []float64{1e-300, 1e-16, 1e-5, 0.3, 0.5, 0.999} {
		if back := math.Erfc(-quantile(u)/math.Sqrt2) / 2; math.Abs(back/u-1) > 1e-12 {
			t.Errorf("quantile of %g: the integral there is %g", u, back)
		}
	}
}

// What a file must not say is refused with its name, line and key.
func TestReadRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`[]`:                     "no JSON object",
		`{}`:                     "_class_name",
		`{"_class_name":"DDIM"}`: "is unknown",
		"{\"_class_name\":\"DDIMScheduler\",\n\"beta_strat\":1}":        `f:2: beta_strat: no scheduler has`,
		`{"_class_name":"DDIMScheduler","beta_end":"x"}`:                "beta_end",
		`{"_class_name":"DDIMScheduler","clip_sample":null}`:            "clip_sample: null",
		`{"_class_name":"DDIMScheduler","beta_end":1,"beta_end":1}`:     "given twice",
		`{"_class_name":"DDIMScheduler","rescale_betas_zero_snr":true}`: "rescale_betas_zero_snr",
		`{"_class_name":"DDIMScheduler","beta_schedule":"sigmoid"}`:     "does not know sigmoid",
		`{"_class_name":"UniPCMultistepScheduler"` +
			`,"use_flow_sigmas":true,"prediction_type":"v_prediction"}`: "prediction_type",
		`{"_class_name":"UniPCMultistepScheduler","prediction_type":"flow_prediction"}`: "use_flow_sigmas is false",
		`{"_class_name":"EulerDiscreteScheduler","use_karras_sigmas":true` +
			`,"use_beta_sigmas":true}`: "2 curves",
	} {
		if _, err := Read("f", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// Each target gives back the sample and the noise that it was made of.
func TestTargetsInvert(t *testing.T) {
	t.Parallel()
	x0, eps := make([]float32, 8), make([]float32, 8)
	Key{Sample: 1}.Fill(x0, 0)
	Key{Sample: 2}.Fill(eps, 0)
	wide := func(x []float32) (out []float64) {
		for _, v := range x {
			out = append(out, float64(v))
		}
		return out
	}
	for _, name := range targets.names() {
		target, l := targets.m[name], Level{Alpha: 0.6, Sigma: 0.8, Data: 0.5}
		if name == "flow_prediction" {
			l = Level{Alpha: 0.25, Sigma: 0.75}
		} else if strings.HasPrefix(name, "edm") {
			l.Alpha = 1
		}
		x, out := l.Mix(x0, eps), target.Of(l, x0, eps)
		if d := near(target.X0(l, x, out), wide(x0)); d > 2e-6 {
			t.Errorf("%s: the sample is off by %g", name, d)
		}
		if d := near(target.Noise(l, x, out), wide(eps)); d > 2e-6 {
			t.Errorf("%s: the noise is off by %g", name, d)
		}
	}
}

// Zero terminal SNR leaves no signal at the last time and the first time as it was.
func TestZeroSNR(t *testing.T) {
	t.Parallel()
	b := Betas{TrainSteps: 1000, Start: 0.00085, End: 0.012, Schedule: "scaled_linear"}
	plain, zero := b.cumulative(false), b.cumulative(true)
	if zero[999] != 0 || math.Abs(float64(zero[0]-plain[0])) > 1e-6 ||
		math.Abs(float64(plain[999])-0.0046601) > 1e-7 {
		t.Errorf("ends %g and %g, of %g and %g", zero[0], zero[999], plain[0], plain[999])
	}
}

// The draws stay in [0, 1), depend on the key alone, and have the means of their distributions.
func TestDraws(t *testing.T) {
	t.Parallel()
	want := map[string]float64{"uniform": 0.5, "logit_normal": 0.5, "mode": 0.5,
		"shifted": 0.5, "waver": 0.5, "beta": 0.4}
	for _, name := range Draws() {
		sum := 0.0
		for i := range 20000 {
			u, err := Times{Kind: name}.At(Key{Sample: uint64(i)})
			if err != nil || !(u >= 0 && u < 1) {
				t.Fatalf("%s: %g, %v", name, u, err)
			}
			sum += u / 20000
		}
		if math.Abs(sum-want[name]) > 0.01 {
			t.Errorf("%s: mean %g, want %g", name, sum, want[name])
		}
	}
	if _, err := (Times{Kind: "unifrom"}).At(Key{}); err == nil {
		t.Error("an unknown draw was taken")
	}
}

// Reading never panics, and what it takes can be written and read again.
func FuzzRead(f *testing.F) {
	for _, class := range Classes() {
		f.Add(Marshal(New(class)))
	}
	f.Add([]byte(`{"_class_name":"DDPMScheduler","trained_betas":[0.1],"num_train_timesteps":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Read("f", text)
		if err != nil {
			return
		}
		if _, err := Read("g", Marshal(s)); err != nil {
			t.Errorf("%v of %s", err, Marshal(s))
		}
	})
}
