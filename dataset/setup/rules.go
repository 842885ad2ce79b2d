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
	if err == nil && (k == dataset.KindChat || k == dataset.KindParts) {
		var t *token.Template
		if t, err = Template(c, tok, conf); err == nil {
			c.Notices = append(c.Notices, templateNotes(c, t, tok)...)
		}
	}
	if err != nil {
		report(err, at)
	}
}

// Aimed is the fault of data that the run's loss does not learn from: pairs of answers and losses over them
// go together alone.
func Aimed(c *configs.Config, k dataset.Kind) error {
	kind, draws := c.Run.Objective.Kind, c.Run.Reward.Kind != "none"
	if l := objective.Lookup(kind); l != nil && l.Policy != nil {
		draws = true
	}
	switch {
	case draws && k != dataset.KindPrompts:
		return c.Fault("data.paths", fmt.Sprintf("objective.kind = %s draws answers to prompts, and the data holds %s",
			kind, k), "name records of {prompt, answer}, or set data.kind: prompts")
	case draws:
	case k == dataset.KindPrompts:
		return c.Fault("objective.kind", "the data holds prompts alone, to which a run draws answers",
			"set objective.kind, for example to grpo, and reward.kind")
	case kind == "none" && k == dataset.KindPairs:
		return c.Fault("objective.kind", "the data holds pairs of answers, and the loss is that of a language model",
			"set objective.kind, for example to dpo")
	case kind == "none" && k == dataset.KindJudged:
		return c.Fault("objective.kind", "the data holds judged answers, and the loss is that of a language model",
			"set objective.kind, for example to kto")
	case kind == "none" && k == dataset.KindSimilar:
		return c.Fault("objective.kind",
			"the data holds texts that belong together, and the loss is that of a language model",
			"set objective.kind to infonce")
	case kind == "none":
	case objective.Lookup(kind).Logits != nil:
		if k == dataset.KindPairs || k == dataset.KindJudged || k == dataset.KindSimilar {
			return c.Fault("data.paths", fmt.Sprintf("objective.kind = %s learns from texts or conversations, and "+
				"the data holds %s", kind, k), "name data as for a language model")
		}
	case k != learnsFrom(kind) && (k == dataset.KindJudged || k == dataset.KindPairs || k == dataset.KindSimilar):
		return c.Fault("objective.kind", fmt.Sprintf("the data holds %s, and %s learns from others", k, kind),
			"pairs are {prompt, chosen, rejected}, judged answers {prompt, completion, label}, similar texts {query, "+
				"positive, negatives}")
	case k != learnsFrom(kind) && learnsFrom(kind) == dataset.KindSimilar:
		return c.Fault("data.paths",
			fmt.Sprintf("objective.kind = %s learns from texts that belong together, and the data holds %s", kind, k),
			"name records of {query, positive, negatives}")
	case k != learnsFrom(kind):
		return c.Fault("data.paths", fmt.Sprintf("objective.kind = %s learns from pairs of answers, and the data "+
			"holds %s", kind, k), "name records of {prompt, chosen, rejected}")
	}
	return nil
}

// learnsFrom is the kind of data of a loss over answers or texts.
func learnsFrom(loss string) dataset.Kind {
	switch l := objective.Lookup(loss); {
	case l.Vectors != nil:
		return dataset.KindSimilar
	case l.Judged:
		return dataset.KindJudged
	}
	return dataset.KindPairs
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
	if c.Run.Data.Date == "" && strings.Contains(t.Source()+t.ToolSource(), "strftime_now") {
		notes = append(notes, "the chat template writes the date, which is 2024-07-26 here; data.template_date "+
			"sets another, and lfactor serve writes today")
	}
	return notes
}
