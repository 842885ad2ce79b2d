package configs

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/configs/source"
	"go.yaml.in/yaml/v3"
)

// setting is one value for one key.
type setting struct {
	key    *Key
	node   *yaml.Node
	origin Origin
}

// Config is a checked configuration.
type Config struct {
	Run     Run
	Model   Model
	Notices []string // for the user, each to be said once
	// VocabUnit is what LoongForge would pad the vocabulary to a multiple of, 0 if its model file does not say. Padding
	// is a matter of Megatron's kernels: here embeddings have the rows that they have in the published checkpoint.
	VocabUnit int
	// SFT and SFTValid are the entries that data.dataset and data.valid_dataset name, for each path; nil
	// where the files tell.
	SFT, SFTValid []SFTFormat

	file    string
	request Request
	given   map[string][]setting // by key, weakest first, all but defaults
}

// With reads the same again with further settings, key=value, and the model as it is in c.
func (c *Config) With(settings ...string) (*Config, error) {
	req := c.request
	req.Args, req.Files = append(slices.Clone(req.Args), settings...), false
	other, err := Load(req)
	if err == nil {
		other.Model = c.Model
	}
	return other, err
}

// Request says what to read.
type Request struct {
	File   string              // the run file, or ""
	Text   []byte              // its content, if it is not to be read from File
	Args   []string            // overrides key=value, flags, and behind Unsaid what holds where nothing else says it
	Getenv func(string) string // nil: no environment
	// Files has the rules applied that look at files: whether data, tokenizers and weights are there. Who
	// plans or simulates for other hosts leaves it out.
	Files bool
}

// Unsaid begins a setting among a request's Args that stands below its run file.
const Unsaid = "?"

// Compose reads a model file, one of LoongForge's or of ours, with overrides and flags; unlike for Load,
// there need be no data. The file is the request's File or that of --config-file.
func Compose(req Request) (*Config, error) {
	if req.File != "" && ModelFile(req.File) {
		req.Args, req.File = append([]string{"model.file=" + req.File}, req.Args...), ""
	} else if req.File != "" {
		req.Args, req.File = append([]string{"--config-file=" + req.File}, req.Args...), ""
	}
	return load(req, true)
}

// Load reads a run file, the model it names, overrides and flags, and checks everything. All faults are
// reported at once: the error is made of *Error values (see Faults).
func Load(req Request) (*Config, error) {
	if req.Text == nil && req.File != "" && LoongFile(req.File) {
		req.Args, req.File = append([]string{"--config-file=" + req.File}, req.Args...), ""
	}
	return load(req, false)
}

// load reads a configuration from all its layers, later ones over earlier ones. Faults are gathered, so that a user
// sees all of them at once; checks across keys need a file that could be read.
func load(req Request, modelOnly bool) (*Config, error) {
	if err := registered(); err != nil {
		return nil, err
	}
	l := newLoader(req.File)
	l.c.request = req
	l.modelOnly, l.files = modelOnly, req.Files
	if l.c.file == "" {
		l.c.file = "command line"
	}
	l.readRunFile(req)
	l.readEnv(req.Getenv)
	l.readArgs(req.Args)
	l.loong.Read()
	l.loong.Overrides()
	l.clip()
	l.c.VocabUnit = l.loong.VocabUnit
	l.adaptedName()
	l.apply(false)
	l.governed(req.Getenv)
	l.componentRates()
	l.cached(req.Getenv)
	l.description()
	l.readModel()
	l.experts()
	l.applyModel()
	l.tolerate()
	if !l.broken {
		l.checkAll()
	}
	l.noticeOverruled()
	if err := errors.Join(l.errs...); err != nil {
		return nil, err
	}
	return l.c, nil
}

func (l *loader) add(s setting) {
	l.c.given[s.key.Name] = append(l.c.given[s.key.Name], s)
}

// fail notes a fault of a key where its value came from.
func (l *loader) fail(o Origin, key, why, try string) {
	file, line := o.String(), 0
	if o.File != "" {
		file, line = o.File, o.Line
	}
	l.errs = append(l.errs, &Error{File: file, Line: line, Key: key, Why: why, Try: try})
	l.failed[key] = true
}

// readRunFile reads the run file, or the text that stands for it.
func (l *loader) readRunFile(req Request) {
	text := req.Text
	if text == nil {
		if req.File == "" {
			return
		}
		var err error
		if text, err = source.ReadFile(req.File); err != nil {
			l.errs, l.broken = append(l.errs, err), true
			return
		}
	}
	root, err := source.ParseYAML(req.File, text)
	if err != nil {
		l.errs, l.broken = append(l.errs, err), true
		return
	}
	l.section(root, "", Origin{Layer: source.LayerFile, File: req.File})
}

// section enters the keys of a mapping that stands at prefix.
func (l *loader) section(n *yaml.Node, prefix string, o Origin) {
	t := table()
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i].Value, n.Content[i+1]
		if prefix != "" {
			name = prefix + "." + name
		}
		o.Line = n.Content[i].Line
		key, isKey := t.byName[name]
		switch {
		case isKey:
			l.add(setting{key, value, o})
		case t.sections[name] && value.Kind == yaml.MappingNode:
			l.section(value, name, o)
		case t.sections[name]:
			l.fail(o, name, source.NodeKind(value)+", want a mapping", "")
		default:
			l.unknown(o, prefix, name)
		}
	}
}

// unknown reports an unknown key, with the nearest known one: in the same section, else by its last word in another.
func (l *loader) unknown(o Origin, prefix, name string) {
	last := name[strings.LastIndex(name, ".")+1:]
	try := source.DidYouMean(last, table().names(prefix))
	if of := "model.overrides." + strings.TrimPrefix(name, "model."); try == "" && prefix == "model" &&
		table().byName[of] != nil {
		try = "a model of your own is described in a file, model.file; a published one is changed by " + of
	}
	if try == "" {
		try = table().elsewhere(last)
	}
	if all := table().names(prefix); try == "" && len(all) > 12 && prefix != "" {
		try = fmt.Sprintf("`lfactor config explain %s` lists its %d keys", prefix, len(all))
	} else if try == "" {
		try = source.OneOf(all)
	}
	l.fail(o, name, "unknown key", try)
}

// elsewhere suggests a key by the nearest last word.
func (t *keyTable) elsewhere(word string) string {
	full := map[string]string{}
	for _, k := range slices.Backward(t.keys) {
		full[k.Name[strings.LastIndex(k.Name, ".")+1:]] = k.Name
	}
	best, dist := "", len(word)/3+1
	for _, last := range source.SortedKeys(full) {
		if d := source.EditDistance(word, last); d < dist {
			best, dist = full[last], d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", best)
}

// readEnv reads what the environment sets, which is the device alone.
func (l *loader) readEnv(getenv func(string) string) {
	l.loong.Getenv = getenv
	if getenv == nil {
		return
	}
	if v := getenv("LFACTOR_DEVICE"); v != "" {
		l.add(setting{table().byName["device"], source.ScalarNode(v), Origin{Layer: source.LayerEnv,
			Text: "LFACTOR_DEVICE=" + v}})
	}
}

// cached takes snapshots of Hugging Face's cache for directories that name them.
func (l *loader) cached(getenv func(string) string) {
	r := &l.c.Run
	for _, k := range []struct {
		key string
		dir *string
	}{{"model.path", &r.Model.Path}, {"data.tokenizer", &r.Data.Tokenizer},
		{"data.processor", &r.Data.Processor}, {"checkpoint.load", &r.Checkpoint.Load}} {
		if *k.dir == "" {
			continue
		}
		found, err := hf.Resolve(*k.dir, getenv)
		if err != nil {
			l.fail(l.c.place(k.key), k.key, err.Error(), "")
		} else if found != *k.dir {
			l.c.Notices = append(l.c.Notices,
				fmt.Sprintf("%s = %s: the snapshot of %s in Hugging Face's cache", k.key, found, *k.dir))
			*k.dir = found
		}
		if found, err = hf.Unfold(*k.dir); err != nil {
			l.fail(l.c.place(k.key), k.key, err.Error(), "")
		} else {
			*k.dir = found
		}
	}
	r.Model.Path = hf.DenoiserDir(r.Model.Path)
}

// ForModel is the configuration of a model's folder alone, with every other setting at its default.
func ForModel(dir string) (*Config, error) {
	l := newLoader(dir)
	l.apply(false)
	l.hfDir(dir)
	if _, err := l.model(); err != nil {
		return nil, err
	}
	l.c.Run.Model.Path = dir
	return l.c, nil
}

// apply sets the values of Run's keys or Model's, weakest first, so that the strongest stays.
func (l *loader) apply(model bool) {
	for _, k := range table().keys {
		if k.model == model {
			l.applyKey(k)
		}
	}
}

// applyKey sets one key.
func (l *loader) applyKey(k *Key) {
	dst := k.field(&l.c.Run, &l.c.Model)
	if k.Default != "" {
		mustSet(dst, k.Name, k.Default)
	}
	given := l.c.given[k.Name]
	slices.SortStableFunc(given, func(a, b setting) int { return int(a.origin.Layer - b.origin.Layer) })
	for _, s := range given {
		l.set(dst, s)
	}
}

// applyModel sets the keys of Model, and what follows from them. Presets have done their work then.
func (l *loader) applyModel() {
	l.presets()
	l.apply(true)
	l.c.Model.TextPreset, l.c.Model.Vision.Preset = "", ""
	l.c.Model.complete()
}

// set decodes one value; a value that is overruled must be right too.
func (l *loader) set(dst reflect.Value, s setting) {
	v := reflect.New(dst.Type()).Elem()
	why, try := setValue(v, s.node)
	if why == "" {
		why, try = s.key.check(v)
	}
	if why != "" {
		l.fail(s.origin, s.key.Name, why, try)
		return
	}
	dst.Set(v)
}

// tolerate switches off what launch scripts ask for in vain and Megatron passes over. In a run file it is a fault.
func (l *loader) tolerate() {
	r := &l.c.Run
	if r.Plan.SequenceParallel && r.Plan.TP == 1 && l.c.Origin("plan.sequence_parallel").Layer == source.LayerFlag {
		r.Plan.SequenceParallel = false
		l.c.Notices = append(l.c.Notices, "no effect with plan.tp = 1: --sequence-parallel")
	}
	if n := l.samples; n > 0 {
		if r.Train.Steps = n / r.Train.GlobalBatch; l.c.Origin("train.steps") != (Origin{}) || r.Train.Steps == 0 {
			l.fail(l.samplesAt, "train.steps", fmt.Sprintf("%d samples are %d steps of train.global_batch = %d", n,
				n/r.Train.GlobalBatch, r.Train.GlobalBatch), "give --train-iters or --train-samples, for a step or more")
		}
		l.c.Notices = append(l.c.Notices, fmt.Sprintf("train.steps = %d: --train-samples %d", r.Train.Steps, n))
	}
	if n := l.exitAfter; n > 0 && n < r.Train.Steps {
		if r.Schedule.DecaySteps == 0 {
			r.Schedule.DecaySteps = r.Train.Steps
		}
		l.c.Notices = append(l.c.Notices,
			fmt.Sprintf("train.steps = %d: --exit-interval, before the end of --train-iters %d", n, r.Train.Steps))
		r.Train.Steps = n
	}
	l.tolerateHeads()
	l.biases()
	l.replicas()
	script := l.script || l.c.Origin("model.name").Layer == source.LayerFlag
	if script && !l.c.Model.Vision.None() && l.c.Origin("data.kind").Layer == source.LayerDefault {
		r.Data.Kind = "media" // a launch script has no other data for such a model
	}
	conversations := l.c.Origin("data.dataset").Layer == source.LayerFlag ||
		l.c.Origin("data.dataset_config").Layer == source.LayerFlag
	if conversations && l.c.Origin("data.kind").Layer == source.LayerDefault && r.Data.Kind != "media" {
		r.Data.Kind = "chat"
	}
	weight := loong.LossWeight(l.c.Model.ModelType)
	if script && weight != "" && r.Train.Phase == "sft" &&
		l.c.Origin("train.loss_weight").Layer == source.LayerDefault {
		r.Train.LossWeight = weight
		l.c.Notices = append(l.c.Notices,
			"train.loss_weight = "+weight+": LoongForge's --loss-reduction if it is not given")
	}
	if r.Checkpoint.Interval > 0 && r.Checkpoint.Dir == "" &&
		l.c.Origin("checkpoint.interval").Layer == source.LayerFlag {
		r.Checkpoint.Interval = 0
		l.c.Notices = append(l.c.Notices, "no effect without --save: --save-interval")
	}
}

// tolerateHeads gives an encoder whose heads do not divide by plan.tp ranks of its own kind, where a launch
// script says nothing of it: LoongForge fills them up with heads of zeros.
func (l *loader) tolerateHeads() {
	p, v := &l.c.Run.Plan, l.c.Model.Vision
	script := l.script || l.c.Origin("model.name").Layer == source.LayerFlag
	given := l.c.Origin("plan.encoder.over").Layer != source.LayerDefault ||
		l.c.Origin("plan.encoder.tp").Layer != source.LayerDefault
	if v.None() || !script || given || v.Heads%p.TP == 0 {
		return
	}
	p.Encoder.Over, p.Encoder.TP = "first", gcd(gcd(v.Heads, v.Inter), p.TP)
	l.c.Notices = append(l.c.Notices, fmt.Sprintf("plan.encoder.over = first, plan.encoder.tp = %d: the encoder's "+
		"%d heads do not divide by plan.tp = %d", p.Encoder.TP, v.Heads, p.TP))
}

// checkAll lets every section check itself.
func (l *loader) checkAll() {
	r := &l.c.Run
	var data section = &r.Data
	if l.modelOnly && len(r.Data.Paths) == 0 {
		data = &Data{Paths: []WeightPath{{Path: "none", Weight: 1}}, Split: []float64{1, 0, 0}}
	}
	sections := []section{&r.Model, data, &r.Train, &r.Train.Router, &r.Train.Indexer, &r.Optimizer, &r.Schedule,
		&r.Plan, &r.Plan.Encoder, &r.LoRA, &r.Diffusion, &r.Policy, &r.Objective, &r.Rollout, &r.Reward, &r.Checkpoint,
		&r.Log}
	if l.modelRead {
		sections = append(sections, &l.c.Model, fit{l.c})
	}
	for _, s := range sections {
		s.Check(l)
	}
	l.sftData()
	if len(l.failed) == 0 {
		l.c.noteIdle()
	}
	l.applyRules(l.modelRead && !l.failedBelow("model."))
}

// failedBelow says whether a key that begins so is at fault.
func (l *loader) failedBelow(prefix string) bool {
	for key := range l.failed {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// fault implements faults: it finds the place of the key. What was at fault before is not reported twice.
func (l *loader) fault(key, why, try string) {
	if !l.failed[key] {
		l.fail(l.c.place(key), key, why, try)
	}
}

// place is where a key was set, or the file as a whole if it was not.
func (c *Config) place(key string) Origin {
	if o := c.Origin(key); o.Layer != source.LayerDefault {
		return o
	}
	return Origin{Layer: source.LayerFile, File: c.file}
}

// Origin says where the value of a key comes from.
func (c *Config) Origin(key string) Origin {
	if given := c.given[key]; len(given) > 0 {
		return given[len(given)-1].origin
	}
	return Origin{}
}

// Fault returns an *Error about a key that names the place where it was set, for checks that need more than
// the configuration: a vocabulary that disagrees with the tokenizer's, a path that does not exist.
func (c *Config) Fault(key, why, try string) error {
	o := c.place(key)
	if o.File == "" {
		return &Error{File: o.String(), Key: key, Why: why, Try: try}
	}
	return &Error{File: o.File, Line: o.Line, Key: key, Why: why, Try: try}
}

// Value returns the value of a key as YAML, and whether there is such a key.
func (c *Config) Value(key string) (string, bool) {
	k := table().byName[key]
	if k == nil {
		return "", false
	}
	return formatValue(k.field(&c.Run, &c.Model)), true
}

// Usual reports whether a key has its default, whether it was written or not.
func (c *Config) Usual(key string) bool {
	k := table().byName[key]
	return k == nil || formatValue(k.field(&c.Run, &c.Model)) == k.format(k.Default)
}

// Flat returns every setting as YAML by its key: what a checkpoint keeps and Resume compares.
func (c *Config) Flat() map[string]string {
	out := map[string]string{}
	for _, k := range table().keys {
		out[k.Name] = Redact(formatValue(k.field(&c.Run, &c.Model)))
	}
	return out
}

// noticeOverruled says once for each key that a flag or an override beat the model's file, or was beaten by
// one of LoongForge's.
func (l *loader) noticeOverruled() {
	for _, k := range table().keys {
		given := l.c.given[k.Name]
		if len(given) < 2 {
			continue
		}
		top, below := given[len(given)-1], given[:len(given)-1]
		for _, s := range slices.Backward(below) {
			a, b := l.text(k, top), l.text(k, s)
			overrules := s.origin.Layer == source.LayerModel && top.origin.Layer >= source.LayerOverride ||
				top.origin.Layer >= source.LayerLoong
			// a flag given twice; "empty" stands beside --conv-style
			twice := s.origin.Layer == source.LayerFlag && top.origin.Layer == source.LayerFlag &&
				s.node.Value != "empty"
			if (overrules || twice) && a != b {
				l.c.Notices = append(l.c.Notices, fmt.Sprintf("%s: %s from %s overrules %s from %s", k.Name,
					Redact(a), top.origin, Redact(b), s.origin))
				break
			}
		}
	}
}

// text is a setting's value in the form of Value.
func (l *loader) text(k *Key, s setting) string {
	v := reflect.New(k.typ).Elem()
	if why, _ := setValue(v, s.node); why != "" {
		return s.node.Value
	}
	return formatValue(v)
}
