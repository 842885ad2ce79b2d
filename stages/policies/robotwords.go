package policies

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/trained"
)

// words opens the tokenizer of what a policy is told.
func (x *Robots) words(cfg *configs.Config) error {
	c := &cfg.Run
	tok, conf, err := trained.TokenizerAt(c.Data.Tokenizer, c.Model.Path)
	if err != nil {
		return cfg.Fault("data.tokenizer", err.Error(), "name the folder of the model's tokenizer")
	}
	if err := cfg.CheckVocab(tok.VocabSize()); err != nil {
		return err
	}
	x.Tok = tok
	if id, ok := tok.TokenID(conf.BOS); ok && conf.BOS != "" && !x.D.PromptBare {
		x.Begin = id
	}
	return nil
}

// teller says once what models do not read of what they are told.
type teller struct {
	to   io.Writer
	once sync.Once
}

// Tell has notes of what the model does not read of its prompts be written, before it reads any;
// there are none without.
func (x *Robots) Tell(notes io.Writer) {
	x.tell = &teller{to: notes}
	if x.film != nil {
		x.film.tell = x.tell
	}
}

// cut says of the first prompt that has more tokens than are read that it is cut.
func (t *teller) cut(prompt string, n, most int) {
	if t == nil || n <= most {
		return
	}
	t.once.Do(func() {
		fmt.Fprintf(t.to, "note: the model reads %d tokens of what it is told, and a prompt of %d is cut, "+
			"as are others that are longer: %.200q\n", most, n, prompt)
	})
}

// present counts the views that are there.
func present(views [][]float32) (n int) {
	for _, v := range views {
		if v != nil {
			n++
		}
	}
	return n
}

// among are the tokens of a prompt that has so many views among its words.
func (x *Robots) among(task string, views int) (out []int32, err error) {
	w := x.D.Words
	for i, part := range w.Between(task, views) {
		if i > 0 {
			out = append(out, slices.Repeat([]int32{w.Image}, x.D.Sight.Features())...)
		}
		ids, err := x.Tok.TryEncode(part, false)
		if err != nil {
			return nil, err
		}
		if slices.Contains(ids, w.Image) {
			return nil, fmt.Errorf("the task %.40q has the token that stands for views", task)
		}
		out = append(out, ids...)
	}
	return out, nil
}

// told are the tokens of what a policy is told of a task, of a state, nil for none, where it is told in words, and of
// so many views, where these lie among the words.
func (x *Robots) told(task string, state []float64, views int) ([]int32, error) {
	if x.D.Words.Image > 0 {
		return x.among(task, views)
	}
	for state = slices.Clone(state); len(state) > 0 && len(state) < x.states; {
		state = append(state, 0)
	}
	prompt, most := Prompt(task, state), promptMost
	if x.D.Prompt != nil {
		prompt, most = x.D.Prompt(task), x.D.PromptMost
	}
	rows := x.D.Words.Rows
	ids, err := x.Tok.TryEncode(prompt, rows > 0)
	if err != nil {
		return nil, err
	}
	if rows > 0 {
		x.tell.cut(prompt, len(ids), rows)
		if n := len(ids); n > rows { // the end stays
			ids = append(ids[:rows-1:rows-1], ids[n-1])
		}
		for len(ids) < rows {
			ids = append(ids, x.D.Words.Pad)
		}
		return ids, nil
	}
	if x.Begin >= 0 {
		ids = append([]int32{x.Begin}, ids...)
	}
	x.tell.cut(prompt, len(ids), most)
	return ids[:min(len(ids), most)], nil
}

// promptMost is how many tokens of a prompt Pi0.5 reads.
const promptMost = 200

// Prompt is what Pi0.5 is told of a task and of a state from -1 to 1, whose numbers are told as one of 256 steps.
func Prompt(task string, state []float64) string {
	task = strings.NewReplacer("_", " ", "\n", " ").Replace(strings.TrimSpace(task))
	if len(state) == 0 {
		return "Task: " + task + ";\nAction: "
	}
	words := make([]string, len(state))
	for i, v := range state {
		words[i] = fmt.Sprint(bin(v))
	}
	return fmt.Sprintf("Task: %s, State: %s;\nAction: ", task, strings.Join(words, " "))
}

// bin is the step of a number from -1 to 1: -1 below, and 255 at its end and above.
func bin(v float64) int {
	if v < -1 {
		return -1
	}
	return min(255, int(math.Floor((v+1)*128)))
}
