package suite

import (
	"encoding/json"
	"strconv"
)

// Tasks are those of the suite, with so many kernel threads.
func Tasks(threads int) []Task {
	n := strconv.Itoa(threads)
	step := func(precision string) Task {
		return Task{Name: "step-" + precision, Unit: "tokens/s",
			Doc: "a training step of a Llama of 58 M parameters, 4 sequences of 512 tokens, in " + precision,
			Args: func(string) []string {
				return []string{"bench", "step", "--precision", precision, "--threads", n, "--numpy", ""}
			}, Read: readStep}
	}
	return []Task{step("fp32"), step("bf16"),
		{Name: "plan", Unit: "s", Less: true, Doc: "the best plan of Qwen2.5-72B on 512 H100s: 8,000 plans by closed forms, 64 simulated",
			Args: func(string) []string { return []string{"bench", "plan", "--runs", "1"} }, Read: readPlan},
		{Name: "simulate", Unit: "events/s", Doc: "events of 1,024 simulated ranks a second, beside a bare heap",
			Args: func(string) []string { return []string{"bench", "sim", "--ranks", "1024", "--runs", "1"} }, Read: readSim},
		demo("language", "", 1.08, "how many times a bigram model's held-out loss is the model's",
			"a Llama of 1.8 M parameters learns Go's sources", func(d map[string]json.RawMessage) float64 {
				return number(d["bigram_loss"]) / number(d["loss"])
			}),
		demo("vision", "--vlm", 0.9, "of questions about unseen combinations right",
			"a Qwen2.5-VL of 1.3 M parameters learns drawn pictures", func(d map[string]json.RawMessage) float64 {
				return number(d["right_with_image"])
			}),
		demo("pictures", "--image", 0.85, "of unseen combinations drawn right in colour, shape and count",
			"an autoencoder, and on its latents a transformer of diffusion that learns to draw captions", func(d map[string]json.RawMessage) float64 {
				var right []float64
				if json.Unmarshal(d["right"], &right) != nil || len(right) == 0 {
					return 0
				}
				return right[len(right)-1]
			}),
		demo("robot", "--robot", 0.9, "of unseen tables reached",
			"a Pi0.5 of a few layers learns to reach, and is corrected", func(d map[string]json.RawMessage) float64 {
				return number(d["reached"])
			}),
		demo("rewards", "--rl", 0.75, "of unseen sums right",
			"a Llama learns addition from rewards (GRPO)", func(d map[string]json.RawMessage) float64 {
				return number(d["accuracy_after"])
			}),
		demo("long", "--long", 1, "of needles in 8,192 tokens found",
			"a hybrid of linear and full attention finds needles", func(d map[string]json.RawMessage) float64 {
				return number(d["hybrid"]) / number(d["asked"])
			})}
}

// demo is a task of quality: a demonstration from its data to its judgement.
func demo(name, flag string, target float64, quality, doc string, of func(map[string]json.RawMessage) float64) Task {
	return Task{Name: name, Unit: "s", Less: true, Target: target, Quality: quality, Doc: doc,
		Args: func(dir string) []string {
			args := []string{"demo", "--dir", dir}
			if flag != "" {
				args = append(args, flag)
			}
			return args
		}, Read: func(out []byte) (s Score, err error) {
			var d map[string]json.RawMessage
			if err := json.Unmarshal(out, &d); err != nil {
				return s, err
			}
			if s.Value = number(d["seconds"]); s.Value == 0 {
				return s, errNothing
			}
			s.Quality = of(d)
			return s, nil
		}}
}

// number is a JSON number, 0 where there is none.
func number(text json.RawMessage) (v float64) {
	if json.Unmarshal(text, &v) != nil {
		return 0
	}
	return v
}

func readStep(out []byte) (s Score, err error) {
	var r struct {
		Rate    float64 `json:"tokens_per_second"`
		OfFloor float64 `json:"of_floor"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return s, err
	}
	if r.Rate == 0 {
		return s, errNothing
	}
	if s.Value = r.Rate; r.OfFloor > 0 {
		s.Floor = r.Rate / r.OfFloor
	}
	return s, nil
}

func readPlan(out []byte) (s Score, err error) {
	var r struct {
		Closed   float64 `json:"closed_form_s"`
		List     float64 `json:"list_s"`
		Simulate float64 `json:"simulate_s"`
		Trace    float64 `json:"trace_s"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return s, err
	}
	if s.Value = r.Closed + r.List + r.Simulate + r.Trace; s.Value == 0 {
		return s, errNothing
	}
	return s, nil
}

func readSim(out []byte) (s Score, err error) {
	var r []struct {
		Events float64 `json:"events_per_cpu"`
		Heap   float64 `json:"bare_heap_events_per_s"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return s, err
	}
	if len(r) == 0 || r[0].Events == 0 {
		return s, errNothing
	}
	return Score{Value: r[0].Events, Floor: r[0].Heap}, nil
}
