package trained

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/checkpoint/quant"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/topology/machine"
)

// ShardBytes is how many bytes a file of weights has at most.
const ShardBytes = 5 << 30

// SideDir is where tokenizer and configuration files of an export come from.
func SideDir(c *configs.Config) string {
	if c.Run.Model.Path != "" {
		return c.Run.Model.Path
	}
	return c.Run.Data.Tokenizer
}

// Exporter turns an own checkpoint into a Hugging Face directory.
type Exporter struct {
	Cfg   *configs.Config
	Model *family.Model
	Lora  *block.Lora
	Saved *checkpoint.Reader
	Hf    *family.Weights // the weights that training started from: their dtypes are kept; nil for none
	Side  string
	parts map[string]string // components of Hugging Face tensors, where those have dtypes of their own
	with  map[string]bool   // layers that have one
	Shard int64             // bytes of a file, 0 for the usual
	// of what the run calls the parameters that are exported, where they are of the second of two models
	Prefix string
}

// Write makes the directory dst, with a page that says what was trained.
func (e *Exporter) Write(dst string) error {
	if err := e.write(dst); err != nil {
		return err
	}
	return e.card(dst)
}

func (e *Exporter) write(dst string) error {
	l := e.Cfg.Run.LoRA
	if e.Lora != nil && l.AdaptersOnly && !l.Merge {
		return e.adapters(dst)
	}
	if !ofLanguage(e.Model) {
		return taskOf(e.Model).Export(e, dst)
	}
	sink, err := checkpoint.NewWriter(dst, e.Model.HFTensors(e.DType), Form{Shard: e.Shard}.shard())
	if err != nil {
		return err
	}
	if err := e.Model.Export(sink, e.DType, e.Value); err != nil {
		_ = sink.Abort() // the first error is the one to report
		return err
	}
	if err := e.sideFiles(dst); err != nil {
		return err
	}
	if e.Model.Embeds() {
		if err := e.sentence(dst); err != nil {
			return err
		}
	}
	if err := e.beside(dst); err != nil || e.Lora == nil || l.Merge {
		return err
	}
	return e.adapters(filepath.Join(dst, "adapter"))
}

// sideFiles brings tokenizer and configuration: those that the model came with, else ones made from the
// configuration.
func (e *Exporter) sideFiles(dst string) error {
	if e.Side != "" {
		if _, err := checkpoint.CopySideFiles(e.Side, dst); err != nil {
			return err
		}
	}
	path := filepath.Join(dst, "config.json")
	if text := e.Cfg.Model.Description; text != "" {
		if err := os.WriteFile(filepath.Join(dst, configs.DescriptionFile), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if e.Cfg.Run.Model.Path != "" && machine.Exists(path) && e.unchanged() {
		return e.adapt(path)
	}
	m := e.Cfg.Model
	if m.BOS >= m.Vocab { // another tokenizer than the model's own
		m.BOS = -1
	}
	m.EOS = slices.DeleteFunc(slices.Clone(m.EOS), func(id int) bool { return id >= m.Vocab })
	if err := os.WriteFile(path, m.HFConfig(LongName(e.DType(""))), 0o644); err != nil {
		return err
	}
	return e.adapt(path)
}

// adapt brings a config.json to what is exported: weights that are not quantized, and the class of models
// of rewards where scores were trained.
func (e *Exporter) adapt(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil || keys["quantization_config"] == nil && !e.Model.Headless() {
		return err
	}
	delete(keys, "quantization_config")
	if e.Model.Scores() {
		class := strings.ReplaceAll(string(keys["architectures"]), "ForCausalLM", scoresClass)
		keys["architectures"], keys["num_labels"] = json.RawMessage(class), json.RawMessage("1")
		keys["id2label"], keys["label2id"] = json.RawMessage(`{"0": "LABEL_0"}`), json.RawMessage(`{"LABEL_0": 0}`)
	}
	if e.Model.Embeds() {
		class := strings.ReplaceAll(string(keys["architectures"]), "ForCausalLM", bareClass)
		keys["architectures"] = json.RawMessage(class)
	}
	return writeKeys(path, keys)
}

// writeKeys writes a file of settings for people to read.
func writeKeys(path string, keys map[string]json.RawMessage) error {
	text, err := json.MarshalIndent(keys, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// unchanged reports whether the model is that of the directory it came from: no setting of the run says
// otherwise.
func (e *Exporter) unchanged() bool {
	from, err := configs.ReadModel(e.Cfg.Run.Model.Path)
	if err != nil {
		return false // it was read when the run began: what is there now is another's
	}
	m := e.Cfg.Model
	return from.Identity() == m.Identity()
}

// LongName is a dtype as config.json writes it.
func LongName(d string) string {
	return map[string]string{"F32": "float32", "BF16": "bfloat16", "F16": "float16"}[strings.ToUpper(d)]
}

// DType of an exported tensor: that of the weights training started from, else of the model as trained.
func (e *Exporter) DType(hf string) string {
	if e.Hf != nil {
		if d := e.Hf.SourceDType(hf); d != "" {
			return d
		}
	}
	if types := convertedTypes(e.Saved); types != nil && types[hf] != "" {
		return types[hf]
	}
	if own := fit.Components(&e.Cfg.Run); own != nil && hf != "" {
		if e.parts == nil {
			e.parts = map[string]string{}
			for _, p := range e.Model.Params(nil) {
				for _, name := range e.Model.Source(p.Name).Names(p) {
					e.parts[name] = e.Model.Component(p.Name)
				}
			}
		}
		return own(e.parts[hf]).DType.String()
	}
	return fit.Precisions[e.Cfg.Run.Train.Precision].String()
}

// Value is a logical parameter of the checkpoint in float32: its master copy where there is one, with
// adapters merged if asked.
func (e *Exporter) Value(p *grad.Param, dst []float32) error {
	if err := e.Read(p.Name, p.Shape, dst); err != nil {
		return err
	}
	base := strings.TrimSuffix(p.Name, ".weight")
	if l := e.Lora; l != nil && e.Cfg.Run.LoRA.Merge && base == family.EmbedName && len(l.Tokens) > 0 {
		rows := make([]float32, len(l.Tokens)*p.Shape[1])
		err := e.Read(family.TokenRows, []int{len(l.Tokens), p.Shape[1]}, rows)
		for i, id := range l.Tokens {
			copy(dst[id*p.Shape[1]:(id+1)*p.Shape[1]], rows[i*p.Shape[1]:])
		}
		return err
	}
	if !e.Cfg.Run.LoRA.Merge || !e.adapted(base) {
		return nil
	}
	l, lead := e.Lora.Of(e.Prefix+base), p.Shape[:len(p.Shape)-2] // of experts
	out, in := p.Shape[len(p.Shape)-2], p.Shape[len(p.Shape)-1]
	read := func(name string, rest ...int) ([]float32, error) {
		v := make([]float32, tensor.Len(lead)*tensor.Len(rest))
		return v, e.Read(base+name, append(slices.Clone(lead), rest...), v)
	}
	add := func(names [2]string, scale float64) error {
		down, err := read(names[0], l.Rank, in)
		up, fault := read(names[1], out, l.Rank)
		var magnitude []float32
		if err = errors.Join(err, fault); err == nil && l.DoRA {
			magnitude, err = read(block.Magnitude, out)
		}
		for x := 0; x < tensor.Len(lead) && err == nil; x++ {
			quant.Add(dst[x*out*in:(x+1)*out*in], down[x*l.Rank*in:(x+1)*l.Rank*in], up[x*out*l.Rank:(x+1)*out*l.Rank], magnitude, l.Rank, scale)
		}
		return err
	}
	err := add([2]string{".lora_A.weight", ".lora_B.weight"}, l.Scale())
	if err == nil && l.Starts() {
		err = add(block.First, -l.Scale())
	}
	return err
}

// adapted reports whether a layer has an adapter: of those that the patterns match, a router has none.
func (e *Exporter) adapted(base string) bool {
	if e.with == nil {
		e.with = map[string]bool{}
		for _, p := range e.Model.Adapters(e.Lora) {
			e.with[strings.TrimSuffix(p.Name, ".lora_A.weight")] = true
		}
	}
	return e.with[e.Prefix+base]
}

// Read reads a whole parameter as float32, from the master copy where there is one, since that is
// more precise than the parameter itself.
func (e *Exporter) Read(name string, shape []int, dst []float32) error {
	return e.readKinds(name, shape, dst, checkpoint.Master, checkpoint.Param)
}

// readKinds reads a whole parameter as float32, of the first kind that there is of it.
func (e *Exporter) readKinds(name string, shape []int, dst []float32, kinds ...string) error {
	name = e.Prefix + name
	for _, kind := range kinds {
		t, ok := e.Saved.Info(name, kind)
		if !ok {
			continue
		}
		d, err := tensor.ParseDType(strings.ToLower(string(t.DType)))
		if err != nil {
			return err
		}
		ranges := make([][2]int, len(shape))
		for i, n := range shape {
			ranges[i] = [2]int{0, n}
		}
		raw := make([]byte, len(dst)*d.Size())
		if err := e.Saved.ReadLogical(name, kind, ranges, raw); err != nil {
			return err
		}
		tensor.Widen(d, raw, dst)
		return nil
	}
	return &checkpoint.Error{File: e.Saved.Path(), Tensor: name, Fault: checkpoint.Missing,
		Why: "the model needs it"}
}

// AdapterForm says how the adapters of a model are written alone.
type AdapterForm struct {
	Model  *family.Model // whose layers have them
	Lora   *block.Lora
	Prefix string // of the names of their tensors
	Create func(dir string, c checkpoint.AdapterConfig, all []checkpoint.Info) (checkpoint.Sink, error)
}

// adapters writes the adapters alone: in PEFT's format, or in that of the model's task.
func (e *Exporter) adapters(dst string) error {
	if !ofLanguage(e.Model) {
		return taskOf(e.Model).Adapters(e, dst)
	}
	return e.Adapters(dst, AdapterForm{e.Model, e.Lora, checkpoint.AdapterPrefix, checkpoint.NewAdapterWriter})
}

// Adapters writes adapters alone into a folder.
func (e *Exporter) Adapters(dst string, form AdapterForm) error {
	all, err := form.Model.PEFT(form.Lora)
	if err != nil {
		return err
	}
	conf := family.AdapterConfig(all, form.Lora)
	conf.BaseModel = e.Cfg.Run.Model.Path
	if repo := hf.RepoOf(conf.BaseModel); repo != "" { // PEFT loads it by name on any machine
		conf.BaseModel = repo
	}
	return WriteAdapters(dst, form, all, conf, e.Read)
}

// WriteAdapters writes adapters in a folder, and the modules that are trained whole; read gives parameters.
func WriteAdapters(dst string, form AdapterForm, all []family.Adapter, conf checkpoint.AdapterConfig,
	read func(name string, shape []int, dst []float32) error) error {
	saved, infos, said, err := form.Model.Saved(form.Lora, form.Prefix)
	if err != nil {
		return err
	}
	maps.Copy(conf.Rest, said)
	for _, a := range all {
		infos = append(infos, a.Tensors(form.Prefix)...)
	}
	sink, err := form.Create(dst, conf, infos)
	if err != nil {
		return err
	}
	write := func(parts ...[]float32) error {
		for _, v := range parts {
			raw, box := make([]byte, 4*len(v)), make([][2]int, len(infos[0].Shape))
			tensor.Narrow(tensor.F32, v, raw)
			for i, n := range infos[0].Shape {
				box[i][1] = n
			}
			if err := sink.WriteRanges(infos[0].Name, box, raw); err != nil {
				return err
			}
			infos = infos[1:]
		}
		return nil
	}
	for _, p := range saved {
		v := make([]float32, tensor.Len(p.Shape))
		if err := errors.Join(read(p.Name, p.Shape, v), write(v)); err != nil {
			return err
		}
	}
	for _, a := range all {
		parts, err := a.Fill(read)
		if err := errors.Join(err, write(parts...)); err != nil {
			return err
		}
	}
	return sink.Commit()
}
