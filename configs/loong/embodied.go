package loong

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
)

// Fault is what is wrong with a flag.
type Fault struct{ Flag, Why, Try string }

// The flags by which a command line is known for one of LoongForge's trainer of policies, which has names
// and defaults of its own.
var embodiedMarks = []string{"--trainer-type", "--dataset-format"}

const (
	six   = "what LoongForge's trainer of GR00T N1.6" + parts + "groot/n1.6"
	seven = "what LoongForge's trainer of GR00T N1.7" + parts + "groot/n1.7"
	parts = " makes of recordings, with its own parts of an action, is not there: its model file is read " +
		"by --config-file, and a run file trains "
)

// embodiedModel is one of LoongForge's policies: the published model that is one with the length of its
// chunks, or why there is none; and where its words come from, if that is not --tokenizer-path.
type embodiedModel struct{ begins, name, chunk, why, words string }

var embodiedModels = []embodiedModel{
	{begins: "pi05", name: "pi/0.5", chunk: "50"},
	{begins: "xvla", name: "xvla/base", chunk: "30"},
	{begins: "groot_n1_7", why: seven}, {begins: "gr00tn1d7", why: seven},
	{begins: "groot_n1_6", why: six}, {begins: "gr00tn1d6", why: six},
	{begins: "fastwam", name: "fastwam/base", chunk: "32", words: "captions and views are encoded by " +
		"diffusion.text_encoder, with the tokenizer beside it, and diffusion.autoencoder"},
	{begins: "lingbot_va", why: "what LoongForge's trainer of LingBot-VA makes of recordings, with latents " +
		"that its script extracted, texts of segments, and captions that are left out, is not there: a run " +
		"file trains lingbot-va/base"},
	{begins: "dreamzero", why: "what LoongForge's trainer of DreamZero makes of recordings, with parts of an " +
		"action that are relative and blocks before the step that is drawn, is not there: its model file is " +
		"read by --config-file for LIBERO, and a run file trains dreamzero/5b or dreamzero/14b"},
	{begins: "cosmos3", why: "what LoongForge's trainer of Cosmos3 makes of recordings, with pictures that are " +
		"recoloured, columns of joints and grippers by themselves and captions that are left out, is " +
		"not there: its model file is read by --config-file, and a run file trains cosmos3/nano"},
}

// embodiedUsual are defaults of LoongForge's that are others here, with the key here that says the same:
// where a line has that, it counts.
var embodiedUsual = [][3]string{{"train-iters", "150000", "train.steps"},
	{"save-interval", "10000", "checkpoint.interval"}, {"seed", "3047", "train.seed"},
	{"lr-base", "2.5e-5", "optimizer.lr"}, {"lr-decay-style", "cosine_with_min_lr", "schedule.kind"},
	{"lr-warmup-iters", "2000", "schedule.warmup_steps"}, {"min-lr", "1e-6", "optimizer.min_lr"},
	{"clip-grad", "1.0", "optimizer.clip_grad"}, {"weight-decay", "0.01", "optimizer.weight_decay"},
	{"adam-beta1", "0.9", "optimizer.beta1"}, {"adam-beta2", "0.95", "optimizer.beta2"},
	{"adam-eps", "1e-8", "optimizer.eps"}, {"per-device-batch-size", "4", ""},
	{"gradient-accumulation-steps", "1", ""}, {"distributed-strategy", "fsdp", "plan.zero"},
	{"dtype", "bfloat16", "train.precision"}, {"weight-decay-grouping", "all", ""}}

// embodiedAlike have the same name and meaning here.
var embodiedAlike = strings.Fields("train-iters seed lr-warmup-iters min-lr clip-grad weight-decay adam-beta1 adam-beta2 " +
	"adam-eps log-interval pretrained-checkpoint tensorboard-dir lr-decay-iters")

// embodiedNames have another name here.
var embodiedNames = map[string]string{"lr-base": "lr", "output-dir": "save", "dataset-path": "data-path"}

// embodiedIdle say how LoongForge gets to what happens here anyway.
var embodiedIdle = strings.Fields("robot-type num-workers lerobotdataset-version video-backend " +
	"dataloader-multiprocessing-context dataloader-seed-workers batch-drop-last ddp-find-unused-parameters " +
	"no-ddp-find-unused-parameters ddp-static-graph ddp-gradient-as-bucket-view no-ddp-broadcast-buffers " +
	"ddp-bucket-cap-mb no-dynamo-optimize-ddp zero-parameters-as-bucket-view init-on-meta deterministic-mode")

// embodiedValues are flags of which some values have a meaning here, and the arguments that say it.
var embodiedValues = map[string]map[string][]string{
	"trainer-type":     {"FinetuneTrainer": nil},
	"dataset-format":   {"lerobot_datasets": nil},
	"dataset-strategy": {"default": nil},
	"save-format":      {"safetensors": nil},
	"lr-decay-style": {"cosine_with_min_lr": {"--lr-decay-style", "cosine"}, "cosine": {"--lr-decay-style",
		"cosine"}, "cosine_warmup_with_min_lr": {"--lr-decay-style", "cosine"},
		"constant_with_warmup": {"--lr-decay-style", "constant"}, "linear": {"--lr-decay-style", "linear"}},
	"optimizer":             {"AdamW": nil, "TorchFusedAdamW": nil, "TEFusedAdamW": nil, "ApexFusedAdamW": nil},
	"dtype":                 {"bfloat16": {"--bf16"}, "float32": nil},
	"distributed-strategy":  {"fsdp": {"plan.zero=3"}, "ddp": nil},
	"weight-decay-grouping": {"all": nil, "bias_norm": nil},
}

// says tells whether a line has an override of a key.
func says(args []string, key string) bool {
	return key != "" && slices.ContainsFunc(args, func(a string) bool {
		return strings.HasPrefix(strings.TrimLeft(a, "+"), key+"=")
	})
}

// Embodied makes of a command line of LoongForge's trainer of policies one of this program's, with notes of what is
// otherwise here; other command lines are given back as they are. A policy that there is none of here is the only fault
// of its line: what else it says is about that. dp is plan.dp as a run file or the environment says it, "" for neither.
func Embodied(args []string, dp string) (out, notes []string, faults []Fault) {
	if !slices.ContainsFunc(args, func(a string) bool {
		name, _, _ := strings.Cut(a, "=")
		return slices.Contains(embodiedMarks, name)
	}) {
		return args, nil, nil
	}
	given, own := embodiedFlags(args)
	for _, u := range embodiedUsual {
		if _, ok := given[u[0]]; !ok && !says(args, u[2]) {
			given[u[0]] = u[1]
			own = append(own, u[0])
		}
	}
	e := &embodied{given: given}
	if !e.model() {
		return nil, nil, e.faults
	}
	for _, name := range own {
		e.flag(name)
	}
	e.batch(append([]string{"plan.dp=" + dp}, args...))
	for _, a := range embodiedRest(args) {
		e.override(a)
	}
	return e.out, e.notes, e.faults
}

// embodiedFlags are the flags of a command line with their values, and their names in order.
func embodiedFlags(args []string) (given map[string]string, names []string) {
	given = map[string]string{}
	for i := 0; i < len(args); i++ {
		name, ok := strings.CutPrefix(args[i], "--")
		if !ok {
			continue
		}
		name, value, inline := strings.Cut(name, "=")
		name = strings.ReplaceAll(name, "_", "-")
		if !inline && i+1 < len(args) && embodiedValue(name, args[i+1]) {
			i++
			value = args[i]
		}
		if _, again := given[name]; !again {
			names = append(names, name)
		}
		given[name] = value
	}
	return given, names
}

// embodiedValue reports whether an argument is a flag's value: overrides, which have a key before "=",
// are not, but for the modules of --lr-group.
func embodiedValue(flag, arg string) bool {
	key, _, override := strings.Cut(arg, "=")
	return !strings.HasPrefix(arg, "--") && (flag == "lr-group" || !(override && strings.Contains(key, ".")))
}

// embodiedRest are the overrides of a command line.
func embodiedRest(args []string) (out []string) {
	before := ""
	for _, a := range args {
		if !strings.HasPrefix(a, "--") && !embodiedValue(before, a) {
			out = append(out, a)
		}
		before = strings.ReplaceAll(strings.TrimPrefix(a, "--"), "_", "-")
	}
	return out
}

// override enters an override: one of a key of the policy's file, whose dots LoongForge reads as ours
// are, is what the file's key is, and another one of this program's.
func (e *embodied) override(arg string) {
	p := policies[e.of.begins]
	key, value, _ := strings.Cut(arg, "=")
	to, known := p.Keys[key]
	switch only := p.Only[key]; {
	case only != nil:
		if !slices.Contains(only, value) {
			e.faults = append(e.faults, Fault{key, fmt.Sprintf("%q, only %s is built", value,
				strings.Join(only, " or ")), ""})
		}
	case !known:
		e.out = append(e.out, arg)
	case len(to) == 0:
		e.notes = append(e.notes, "accepted, no effect: "+arg)
	default:
		if values := p.Values[key]; values != nil {
			v, ok := values[strings.ToLower(value)]
			if !ok {
				e.faults = append(e.faults, Fault{key, fmt.Sprintf("%q is not there: %s is", value,
					strings.Join(source.SortedKeys(values), ", ")), ""})
				return
			}
			value = v
		}
		for _, k := range to {
			e.out = append(e.out, k+"="+value)
		}
	}
}

// embodied is a command line that is read.
type embodied struct {
	given      map[string]string
	of         embodiedModel
	out, notes []string
	faults     []Fault
}

func (e *embodied) fail(flag, why, try string) {
	e.faults = append(e.faults, Fault{"--" + flag, why, try})
}

// model finds the policy that is meant, with the length of its chunks of actions.
func (e *embodied) model() bool {
	name := e.given["model-name"]
	for _, m := range embodiedModels {
		if !strings.HasPrefix(strings.ToLower(name), m.begins) {
			continue
		}
		if m.name == "" {
			e.fail("model-name", m.why, "docs/policies.md says which policies there are")
			return false
		}
		e.out, e.of = append(e.out, "--model-name", m.name, "data.seq_len="+m.chunk), m
		return true
	}
	e.fail("model-name", fmt.Sprintf("%q is none of LoongForge's policies", name),
		"name a policy, or leave out --trainer-type and --dataset-format")
	return false
}

// otherKind says what a model file is of whose model is none of language and images.
func otherKind(name string) string {
	for _, m := range embodiedModels {
		if m.why != "" && strings.HasPrefix(strings.ToLower(name), m.begins) {
			return ", but a policy of robots, and " + m.why
		}
	}
	return ""
}

// flag reads one of them.
func (e *embodied) flag(name string) {
	value := e.given[name]
	values, known := embodiedValues[name]
	switch {
	case name == "model-name" || name == "per-device-batch-size" || name == "gradient-accumulation-steps":
	case name == "dataset-strategy" && value == e.of.begins: // recordings are read as the model wants them
	case name == "lr-decay-style" && strings.HasPrefix(value, "cosine_warmup") && e.given["lr-warmup-iters"] != "0":
		e.fail(name, fmt.Sprintf("%q begins its warm-up at a share of the rate, which is not there", value),
			"set --lr-warmup-iters 0, or --lr-decay-style cosine_with_min_lr")
	case name == "tokenizer-path" && e.of.words != "":
		e.notes = append(e.notes, "accepted, no effect: --tokenizer-path "+value+": "+e.of.words)
	case known:
		with, ok := values[value]
		if !ok {
			e.fail(name, fmt.Sprintf("%q is not there: %s is", value, strings.Join(keysOf(values), ", ")), "")
			return
		}
		e.out = append(e.out, with...)
		if name == "weight-decay-grouping" && value == "all" {
			e.notes = append(e.notes, "--weight-decay-grouping all: norms and biases do not decay here")
		}
	case name == "lr-group":
		e.groups(value)
	case name == "loss-spike-threshold":
		e.notes = append(e.notes, "accepted, no effect: --loss-spike-threshold "+value+
			": samples keep their gradients here; train.spike_loss leaves steps out of the ordinary aside")
	case name == "zero-optimizer":
		e.out = append(e.out, "plan.zero=1")
	case name == "tokenizer-path":
		e.out = append(e.out, "data.tokenizer="+value)
	case name == "save-interval":
		if value != "0" { // a run's end is saved anyway
			e.out = append(e.out, "--save-interval", value)
		}
	case embodiedNames[name] != "":
		e.out = append(e.out, "--"+embodiedNames[name], value)
	case slices.Contains(embodiedAlike, name):
		e.out = append(e.out, "--"+name, value)
	case slices.Contains(embodiedIdle, name):
		e.notes = append(e.notes, strings.TrimSpace("accepted, no effect: --"+name+" "+value))
	default:
		e.out = append(e.out, strings.Fields("--"+name+" "+value)...) // another one's to know, or to refuse
	}
}

// groups makes rates of modules, as module.path=rate with commas between them, rules of optimizer.groups,
// whose rates are factors on that of all others.
func (e *embodied) groups(text string) {
	all, err := strconv.ParseFloat(e.given["lr-base"], 64)
	if err != nil || !(all > 0) {
		e.fail("lr-base", fmt.Sprintf("%q, want a rate above 0", e.given["lr-base"]), "")
		return
	}
	var rules []string
	for item := range strings.SplitSeq(text, ",") {
		path, rate, ok := strings.Cut(strings.TrimSpace(item), "=")
		own, err := strconv.ParseFloat(rate, 64)
		if !ok || err != nil || !(own >= 0) || path == "" || strings.ContainsAny(path, " *") {
			e.fail("lr-group", fmt.Sprintf("%q, want module.path=rate", item), "put commas between several")
			return
		}
		rules = append(rules, fmt.Sprintf("'%s.* lr=%s'", path, strconv.FormatFloat(own/all, 'g', -1, 64)))
	}
	e.out = append(e.out, "optimizer.groups=["+strings.Join(rules, ", ")+"]")
}

// batch makes of a device's samples those of a step.
func (e *embodied) batch(args []string) {
	dp := 1
	for _, a := range args {
		if text, ok := strings.CutPrefix(a, "plan.dp="); ok {
			if n, err := strconv.Atoi(text); err == nil && n > 0 { // another value is the key's to refuse
				dp = n
			}
		}
	}
	var n [2]int
	for i, name := range []string{"per-device-batch-size", "gradient-accumulation-steps"} {
		var err error
		if n[i], err = strconv.Atoi(e.given[name]); err != nil || n[i] < 1 {
			e.fail(name, fmt.Sprintf("%q, want a number above 0", e.given[name]), "")
			return
		}
	}
	if !says(args, "train.micro_batch") {
		e.out = append(e.out, "--micro-batch-size", strconv.Itoa(n[0]))
	}
	if says(args, "train.global_batch") {
		return
	}
	e.out = append(e.out, "--global-batch-size", strconv.Itoa(n[0]*n[1]*dp))
	e.notes = append(e.notes, fmt.Sprintf("train.global_batch = %d, as --per-device-batch-size %d times "+
		"--gradient-accumulation-steps %d times plan.dp=%d: LoongForge takes the devices that torchrun starts for plan.dp",
		n[0]*n[1]*dp, n[0], n[1], dp))
}

// keysOf are the keys of a mapping, in order.
func keysOf(m map[string][]string) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
