package imports

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// to takes a value over as it is.
func to(key string) rule {
	return func(r *reading, from string, v any) {
		if v != nil {
			r.ours[key] = plain(v)
		}
	}
}

// plain is a number that was written as a word, as 1e-5 is in YAML 1.1, and anything else as it is.
func plain(v any) any {
	if s, ok := v.(string); ok {
		if x, err := strconv.ParseFloat(s, 64); err == nil && strings.ContainsAny(s, "eE.") {
			return x
		}
	}
	return v
}

// idle is a key that means nothing here.
func idle(why string) rule {
	return func(r *reading, key string, v any) { r.differ(key, v, why) }
}

// silent is a key that another one's rule reads, or whose meaning lfactor has anyway.
func silent(*reading, string, any) {}

// word takes over one of some words.
func word(key string, words map[string]string) rule {
	return func(r *reading, from string, v any) {
		ours, ok := words[strings.ToLower(fmt.Sprint(v))]
		switch {
		case !ok:
			r.differ(from, v, "has no like here; "+key+" stays as it is: lfactor config explain "+key)
		case ours != "":
			r.ours[key] = ours
		}
	}
}

// yes sets a key to a value where theirs is true.
func yes(key string, value any) rule {
	return func(r *reading, _ string, v any) {
		if on(v) {
			r.ours[key] = value
		}
	}
}

// on reports whether a switch is on.
func on(v any) bool {
	s := strings.ToLower(fmt.Sprint(v))
	return v != nil && (s == "true" || s == "yes" || s == "auto" || s == "1")
}

// number is one of theirs, or what stands for it.
func (r *reading) number(key string, none float64) float64 {
	switch x := plain(r.all[key]).(type) {
	case int:
		return float64(x)
	case int64:
		return float64(x)
	case float64:
		return x
	}
	return none
}

// batches sets both sizes of a batch: theirs are of a device and of how often gradients are added up.
func (r *reading) batches(micro, adds string) {
	m, n := int(r.number(micro, 1)), int(r.number(adds, 1))
	r.ours["train.micro_batch"], r.ours["train.global_batch"] = m, m*n*r.o.Devices
	if r.o.Devices > 1 {
		r.ours["plan.dp"] = r.o.Devices
	}
	if r.all[micro] == nil {
		r.differ(micro, nil, "was not given: 1 stands for it")
	}
}

// length sets the number of steps, or of passes where that is not said; usual is what stands for these there.
func (r *reading) length(steps, epochs string, usual float64) {
	if n := r.number(steps, -1); n > 0 {
		r.ours["train.steps"] = int(n)
		return
	}
	r.ours["train.epochs"] = r.number(epochs, usual)
	if r.all[epochs] == nil {
		r.differ(epochs, nil, fmt.Sprintf("was not given: %g stands for it, as there", usual))
	}
}

// fromHub lets a name that is of no folder here be fetched from the hub.
func (r *reading) fromHub(key string) {
	name := fmt.Sprint(r.all[key])
	if i, err := os.Stat(name); err != nil || !i.IsDir() {
		if strings.Count(name, "/") == 1 && !strings.HasPrefix(name, ".") {
			r.ours["model.path"] = "hf://" + name
		}
		r.differ(
			key,
			name,
			"is no folder here: hf:// fetches it from the hub where the cache has it not; a folder may stand there, too",
		)
	}
	if r.number("warmup_steps", 0) > 0 {
		delete(r.ours, "schedule.warmup_fraction")
	}
}

// noAdditions takes settings of adapters away, which train all weights.
func (r *reading) noAdditions() {
	for _, key := range []string{"rank", "alpha", "dropout", "targets", "base"} {
		delete(r.ours, "lora."+key)
	}
}

// bestBy says which metric decides on the best checkpoint where it is not the loss.
func bestBy(r *reading, key string, v any) {
	if name := fmt.Sprint(v); name != "loss" && name != "eval_loss" {
		r.differ(key, v, "checkpoint.best goes by the loss of evaluations alone")
	}
}

// held sets aside a part for validation, given as a share.
func held(r *reading, key string, v any) {
	share := 0.0
	switch x := plain(v).(type) {
	case float64:
		share = x
	case int:
		share = float64(x)
	case int64:
		share = float64(x)
	}
	switch {
	case share == 0:
	case share < 1:
		held := math.Round(1000*share) / 10
		r.ours["data.split"] = []float64{100 - held, held, 0}
	default:
		r.differ(key, v, "is a number of samples; data.split takes shares, as [98, 2, 0]")
	}
}

// targets names layers that get additions, and modules those that are trained whole.
func targets(r *reading, _ string, v any) { r.ours["lora.targets"] = layers(v) }

func modules(r *reading, _ string, v any) { r.ours["lora.modules_to_save"] = layers(v) }

func layers(v any) (out []string) {
	var names []string
	switch x := v.(type) {
	case []any:
		for _, n := range x {
			names = append(names, fmt.Sprint(n))
		}
	default:
		names = strings.Split(fmt.Sprint(v), ",")
	}
	for _, n := range names {
		switch n = strings.TrimSpace(n); n {
		case "":
		case "all", "all-linear":
			out = append(out, "*")
		default:
			out = append(out, "*."+n)
		}
	}
	return out
}

// zero sets what replicas share out by the number in the name of a file of DeepSpeed's.
func zero(r *reading, key string, v any) {
	name := strings.ToLower(fmt.Sprint(v))
	for n := range 4 {
		if strings.Contains(name, fmt.Sprintf("z%d", n)) || strings.Contains(name, fmt.Sprintf("zero%d", n)) {
			r.ours["plan.zero"] = n
			if strings.Contains(name, "offload") {
				r.ours["plan.offload_optimizer"] = true
			}
			return
		}
	}
	r.differ(key, v, "its name does not say which ZeRO it asks for: set plan.zero")
}

var decays = map[string]string{
	"cosine":               "cosine",
	"linear":               "linear",
	"constant":             "constant",
	"constant_with_warmup": "constant",
	"polynomial":           "polynomial",
	"inverse_sqrt":         "inverse-square-root",
	"warmup_stable_decay":  "wsd",
	"cosine_with_min_lr":   "cosine",
	"sqrt":                 "",
}

const (
	noReports = "is for another tool's reports; log.tensorboard writes events, lfactor ui shows the run"
	noSpeed   = "chooses an implementation; lfactor has its own"
	noThreads = "sizes workers; data.readers does here, and by itself"
	resumes   = "the same command goes on by itself"
)
