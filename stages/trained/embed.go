package trained

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/topology/machine"
)

const (
	vectors    = "infonce" // the objective that models of embeddings learn by
	bareClass  = "Model"   // ends the names of transformers' classes without a head
	poolFolder = "1_Pooling"
)

// Embeds reports whether a Hugging Face directory has a model of embeddings, in the form of sentence-transformers.
func Embeds(dir string) bool { return machine.Exists(filepath.Join(dir, poolFolder, "config.json")) }

// aimed gives a directory's model the vectors that it learnt.
func aimed(m *family.Model, dir string) {
	if Embeds(dir) && m.Task().Writes && m.Vision == nil {
		m.Spec.Objective = &family.Objective{Loss: objective.Lookup(vectors)}
	}
}

// poolModes are the keys of sentence-transformers' file for poolings, in the order of objective.Poolings.
var poolModes = []string{objective.PoolMean: "pooling_mode_mean_tokens", objective.PoolLast: "pooling_mode_lasttoken"}

// poolNames are how the file calls them since version 5.4.
var poolNames = []string{objective.PoolMean: "mean", objective.PoolLast: "lasttoken"}

// readPooling is the pooling of a directory in the form of sentence-transformers.
func readPooling(dir string) (int, error) {
	path := filepath.Join(dir, poolFolder, "config.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, exit.Usagef("%s says not how one vector is made of a text's: %v", dir, err)
	}
	var keys map[string]any
	if err := json.Unmarshal(text, &keys); err != nil {
		return 0, exit.With(fmt.Errorf("%s: %w", path, err), exit.Corrupt)
	}
	var on []string
	for k, v := range keys { //lfvet:order they are sorted
		if strings.HasPrefix(k, "pooling_mode_") && v == true {
			on = append(on, k)
		}
	}
	if name, ok := keys["pooling_mode"].(string); ok {
		if i := slices.Index(poolNames, name); i >= 0 {
			return i, nil
		}
		on = []string{name}
	}
	slices.Sort(on)
	if len(on) == 1 {
		if i := slices.Index(poolModes, on[0]); i >= 0 {
			return i, nil
		}
	}
	return 0, exit.Usagef("%s: has the pooling %s, and there are mean and last here", path, strings.Join(on, ", "))
}

// Embedder gives texts vectors of length 1. It is for one goroutine.
type Embedder struct {
	m       *Trained
	gen     *sample.Generator
	pooling int
	backend kernels.Backend
}

// NewEmbedder makes one on the processor, in float32.
func (m *Trained) NewEmbedder() (*Embedder, error) {
	e := &Embedder{m: m}
	switch {
	case !m.Model.Embeds():
		return nil, exit.Usagef("the model gives no embeddings: train one with objective.kind=infonce, or name a directory " +
			"in the form of sentence-transformers whose class has no head")
	case m.Tokenizer == nil:
		return nil, exit.Usagef("the model has no tokenizer")
	case m.Cfg != nil:
		e.pooling = max(0, slices.Index(objective.Poolings, m.Cfg.Run.Objective.Pooling))
	default:
		var err error
		if e.pooling, err = readPooling(m.Dir); err != nil {
			return nil, err
		}
	}
	b, err := kernels.Open(kernels.CPU, kernels.Options{})
	if err != nil {
		return nil, err
	}
	e.backend = b
	if e.gen, err = m.Generator(b, tensor.F32); err != nil {
		kernels.Close(b)
		return nil, err
	}
	return e, nil
}

// Close gives memory back.
func (e *Embedder) Close() { e.gen.Close(); kernels.Close(e.backend) }

// Embed is the vector of a text, as the tokenizer writes it with its special tokens.
func (e *Embedder) Embed(text string) ([]float64, error) {
	ids, err := e.m.Tokenizer.TryEncode(text, true)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("the text has no tokens")
	}
	if most := e.m.Model.Config.MaxPositions; most > 0 && len(ids) > most {
		return nil, fmt.Errorf("the text has %d tokens, and the model reads %d", len(ids), most)
	}
	positions := make([]int32, len(ids))
	for i := range positions {
		positions[i] = int32(i)
	}
	x, err := e.gen.AllStates(ids, positions, []int32{0, int32(len(ids))})
	if err != nil {
		return nil, err
	}
	return objective.Pool(x, len(x)/len(ids), e.pooling), nil
}

// sentence writes what sentence-transformers reads beside a model.
func (e *Exporter) sentence(dst string) error {
	type module struct {
		Idx  int    `json:"idx"`
		Name string `json:"name"`
		Path string `json:"path"`
		Type string `json:"type"`
	}
	const own = "sentence_transformers.models."
	pool := map[string]any{"word_embedding_dimension": e.Model.Spec.Hidden, "include_prompt": true}
	for i, mode := range poolModes {
		pool[mode] = objective.Poolings[i] == e.Cfg.Run.Objective.Pooling
	}
	for path, v := range map[string]any{ //lfvet:order each by itself
		"modules.json": []module{{0, "0", "", own + "Transformer"}, {1, "1", poolFolder, own + "Pooling"},
			{2, "2", "2_Normalize", own + "Normalize"}}, poolFolder + "/config.json": pool,
		"2_Normalize/config.json": map[string]any{}, "sentence_bert_config.json": map[string]any{
			"max_seq_length": e.Cfg.Run.Data.SeqLen, "do_lower_case": false},
		"config_sentence_transformers.json": map[string]any{"model_type": "SentenceTransformer",
			"similarity_fn_name": "cosine", "prompts": map[string]any{}}} {
		text, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		path = filepath.Join(dst, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}
