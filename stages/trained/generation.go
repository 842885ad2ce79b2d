package trained

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/stages/sample"
)

// drawn are the numbers of generation_config.json that act; eos_token_id does beside them.
var drawn = map[string]func(p *sample.Params, v float64){
	"temperature":        func(p *sample.Params, v float64) { p.Temperature = v },
	"top_p":              func(p *sample.Params, v float64) { p.TopP = v },
	"top_k":              func(p *sample.Params, v float64) { p.TopK = max(0, int(v)) },
	"min_p":              func(p *sample.Params, v float64) { p.MinP = v },
	"repetition_penalty": func(p *sample.Params, v float64) { p.Repetition = v },
}

// undrawn are its keys that change no answer, with the value that changes none, "" for any: who wrote the file, what
// fills batches or begins an encoder's decoder, and what is computed beside an answer, or how.
var undrawn = map[string]string{"transformers_version": "", "_from_model_config": "", "_commit_hash": "", "bos_token_id": "",
	"pad_token_id": "", "decoder_start_token_id": "", "use_cache": "", "cache_implementation": "", "cache_config": "",
	"max_cache_len": "", "output_attentions": "", "output_hidden_states": "", "output_scores": "", "output_logits": "",
	"return_dict_in_generate": "", "compile_config": "", "disable_compile": "", "prefill_chunk_size": "", "low_memory": "",
	"continuous_batching_config": "", "renormalize_logits": "", "do_sample": "true", "num_beams": "1", "top_h": "1.0",
	"num_beam_groups": "1", "num_return_sequences": "1", "length_penalty": "1.0", "typical_p": "1.0", "guidance_scale": "1.0",
	"encoder_repetition_penalty": "1.0"}

// generation reads generation_config.json of a model's folder, which may be missing: how answers are drawn where
// nobody says otherwise. Its tokens that end a text come in place of those there are, as in transformers.
func (t *Trained) generation(dir string) error {
	path := filepath.Join(dir, "generation_config.json")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var all map[string]json.RawMessage
	if err = errors.Join(err, json.Unmarshal(text, &all)); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	rest := []string(nil)
	t.usual = map[string]float64{}
	for _, key := range source.SortedKeys(all) {
		value, one := string(all[key]), make([]int32, 1)
		none, known := undrawn[key]
		switch number := 0.0; {
		case value == "null" || value == "false" && key != "do_sample" || known && (none == "" || value == none || value+".0" == none):
		case key == "eos_token_id" && (json.Unmarshal(all[key], &one[0]) == nil || json.Unmarshal(all[key], &one) == nil):
			t.stop = one
		case drawn[key] != nil && json.Unmarshal(all[key], &number) == nil:
			t.usual[key] = number
		case drawn[key] != nil || key == "eos_token_id":
			return fmt.Errorf("%s: %s: %s is no number", path, key, value)
		default:
			rest = append(rest, key)
		}
	}
	if rest != nil {
		t.Notes = append(t.Notes, path+": not read: "+strings.Join(rest, ", ")+"; flags and requests say how answers are drawn")
	}
	var p sample.Params
	t.Usual(&p, func(string) bool { return false })
	if err := p.Check(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Usual sets how the model's folder says that answers are drawn, but for the keys that somebody has given.
func (t *Trained) Usual(p *sample.Params, given func(key string) bool) {
	for key, v := range t.usual {
		if !given(key) {
			drawn[key](p, v)
		}
	}
}
