package setup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/topology/machine"
)

func init() { configs.Hold(configs.Rule{Name: "data", Files: true, Check: checkFiles}) }

// checkFiles is the rule for what the section data names on this host: every path that is missing is said,
// the tokenizer is read and held to the vocabulary, and a chat template to the tokenizer. Stores are not asked.
func checkFiles(c *configs.Config, at configs.At) {
	missing(c.Run.Data.Paths, "data.paths", at)
	missing(c.Run.Data.Valid, "data.valid", at)
	kindHere(c, at)
	if dir := c.Run.Data.Processor; dir != "" && !machine.Exists(filepath.Join(dir, "preprocessor_config.json")) {
		at("data.processor", fmt.Sprintf("%s has no preprocessor_config.json", dir), "name the directory that has it")
	}
	tok, conf, err := RunTokenizer(c)
	if err != nil {
		report(err, at)
		return
	}
	if tok == nil {
		return // ids alone are read
	}
	c.Notices = append(c.Notices, conf.Notes...)
	if rows, n := c.Model.Vocab, tok.VocabSize(); rows > 0 && n > rows {
		report(c.CheckVocab(n), at)
	}
	if c.Run.Data.Kind == "auto" && !hasLocal(c) {
		return // what lies elsewhere is looked at when it is opened
	}
	k, err := DataKind(c)
	if err == nil {
		err = Aimed(c, k)
	}
	if err == nil && (k.Form() == dataset.InMessages || k.Form() == dataset.InParts) {
		var t *token.Template
		if t, err = Template(c, tok, conf); err == nil {
			c.Notices = append(c.Notices, templateNotes(c, t, tok)...)
		}
	}
	if err != nil {
		report(err, at)
	}
}

// aims are the kinds of data that objectives of their own learn from: what such data holds, for people, an objective
// over it, and the members of its records.
var aims = map[dataset.Kind]struct{ holds, example, record string }{
	dataset.KindPairs:   {"pairs of answers", ", for example to dpo", "{prompt, chosen, rejected}"},
	dataset.KindJudged:  {"judged answers", ", for example to kto", "{prompt, completion, label}"},
	dataset.KindSimilar: {"texts that belong together", " to infonce", "{query, positive, negatives}"},
	dataset.KindPrompts: {"prompts alone, to which a run draws answers", ", for example to grpo, and reward.kind",
		"{prompt, answer}"},
}

// Aimed is the fault of data that the run's loss does not learn from: pairs of answers and losses over them
// go together alone.
func Aimed(c *configs.Config, k dataset.Kind) error {
	var want dataset.Kind // "" is texts and conversations
	l := objective.Lookup(c.Run.Objective.Kind)
	if l != nil {
		want = dataset.Kind(l.Data())
	}
	if c.Run.Reward.Kind != "none" {
		want = dataset.KindPrompts //lfvet:kind a reward judges answers to prompts, whatever the loss over them
	}
	has, own := aims[k]
	need := aims[want]
	name := fmt.Sprintf("objective.kind = %s", c.Run.Objective.Kind)
	switch {
	case k == want, want == "" && !own:
		return nil
	case l != nil && l.Policy != nil || c.Run.Reward.Kind != "none":
		return c.Fault("data.paths", fmt.Sprintf("%s draws answers to prompts, and the data holds %s", name, k),
			"name records of "+need.record+", or set data.kind: prompts")
	case own && l == nil:
		return c.Fault("objective.kind", fmt.Sprintf("the data holds %s, and the loss is that of a language model",
			has.holds), "set objective.kind"+has.example)
	case want == "":
		return c.Fault("data.paths", fmt.Sprintf("%s learns from texts or conversations, and the data holds %s", name, k),
			"name data as for a language model")
	case own:
		return c.Fault("objective.kind", fmt.Sprintf("the data holds %s, and %s learns from others: %s, which are %s", k,
			c.Run.Objective.Kind, need.holds, need.record), "")
	}
	return c.Fault("data.paths", fmt.Sprintf("%s learns from %s, and the data holds %s", name, need.holds, k),
		"name records of "+need.record)
}

// missing reports the paths that name nothing on this host's disks. Megatron's form is the prefix of a pair of files.
func missing(paths []configs.WeightPath, key string, at configs.At) {
	var lost []string
	for _, p := range paths {
		files, err := dataset.ExpandPaths(p.Path)
		if store.Scheme(p.Path) != "" {
			continue
		}
		for _, f := range files {
			if !machine.Exists(f) && !machine.Exists(f+".bin") {
				err = os.ErrNotExist
				break
			}
		}
		if err != nil {
			lost = append(lost, p.Path)
		}
	}
	if len(lost) > 0 {
		at(key, fmt.Sprintf("no file of this host is named %s", strings.Join(lost, ", ")),
			"name files, directories or patterns that are there")
	}
}

// report passes the faults of an error on.
func report(err error, at configs.At) {
	faults := configs.Faults(err)
	for _, f := range faults {
		at(f.Key, f.Why, f.Try)
	}
	if len(faults) == 0 {
		at("", err.Error(), "")
	}
}

// templateNotes says what a run's chat template does that its user may not expect.
func templateNotes(c *configs.Config, t *token.Template, tok *token.Tokenizer) (notes []string) {
	if !t.Stops(tok) {
		notes = append(notes, token.EndlessNote)
	}
	if c.Run.Data.Date == "" && t.Dated() {
		notes = append(notes, "the chat template writes the date: the day on which the run begins, also where it goes on "+
			"later; data.template_date sets another, and lfactor serve writes today")
	}
	return notes
}
