package noise

import (
	"strings"
	"testing"
)

// Stable Diffusion 1.5's own scheduler_config.json is read, trains under its table of variances, and samples; without
// skip_prk_steps it trains still. Classes whose sampler is not there train, and say so when samples are asked for.
func TestPublishedSchedulers(t *testing.T) {
	t.Parallel()
	const sd15 = `{"_class_name": "PNDMScheduler", "_diffusers_version": "0.6.0", "beta_end": 0.012,
		"beta_schedule": "scaled_linear", "beta_start": 0.00085, "num_train_timesteps": 1000, "set_alpha_to_one": false,
		"skip_prk_steps": true, "steps_offset": 1, "trained_betas": null, "clip_sample": false}`
	s, err := Read("f", []byte(sd15))
	if err != nil {
		t.Fatal(err)
	}
	levels, err := s.Levels()
	if err != nil || s.Predicts() != "epsilon" || levels == nil {
		t.Fatal(s.Predicts(), err)
	}
	if p, err := s.Sampler(Options{Steps: 50}); err != nil || len(p.Times) != 51 || p.Times[0] != 981 || p.Times[2] != 961 {
		t.Fatal(p, err)
	}
	for text, want := range map[string]string{
		strings.Replace(sd15, `"skip_prk_steps": true`, `"skip_prk_steps": false`, 1):                  "PNDMScheduler with skip_prk_steps false",
		`{"_class_name": "LMSDiscreteScheduler", "use_karras_sigmas": true}`:                           "LMSDiscreteScheduler trains, and its sampler",
		`{"_class_name": "KDPM2DiscreteScheduler"}`:                                                    "KDPM2DiscreteScheduler trains, and its",
		`{"_class_name": "KDPM2AncestralDiscreteScheduler"}`:                                           "KDPM2AncestralDiscreteScheduler trains, and",
		`{"_class_name": "TCDScheduler", "timestep_scaling": 10.0}`:                                    "TCDScheduler trains, and its sampler",
		`{"_class_name": "DEISMultistepScheduler", "algorithm_type": "deis", "solver_type": "logrho"}`: "DEISMultistepScheduler trains",
		`{"_class_name": "DPMSolverSinglestepScheduler", "lambda_min_clipped": -Infinity}`:             "DPMSolverSinglestepScheduler trains",
		`{"_class_name": "SASolverScheduler", "predictor_order": 3, "tau_func": null}`:                 "SASolverScheduler trains",
	} {
		s, err := Read("f", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Levels(); err != nil {
			t.Error(err)
		}
		if _, err := s.Sampler(Options{Steps: 10}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Parallel classes draw as those that they are parallel to.
func TestParallelSchedulers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"DDIM", "DDPM"} {
		for _, class := range []string{name + "Scheduler", name + "ParallelScheduler"} {
			s, err := Read("f", []byte(`{"_class_name": "`+class+`", "beta_schedule": "scaled_linear", "beta_end": 0.012}`))
			if err != nil {
				t.Fatal(err)
			}
			p, err := s.Sampler(Options{Steps: 5})
			if err != nil || len(p.Times) != 5 || s.Class() != class {
				t.Error(class, p, err)
			}
			if s, err = Read("g", Marshal(s)); err != nil || s.Class() != class {
				t.Error(err)
			}
		}
	}
}
