package trained

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// cardName is the page of a model on a hub, and cardMark its line by which a later export knows the page as
// one that it may write anew.
const (
	cardName = "README.md"
	cardMark = "<!-- Written by lfactor with the weights; without this line it stays as it is. -->"
)

// card writes a page of an export: what was trained, from what, with which settings, and how it went. A
// page that is there already, as one that came with the model that training began from, stays.
func (e *Exporter) card(dst string) error {
	path := filepath.Join(dst, cardName)
	if old, err := os.ReadFile(path); err == nil && !bytes.Contains(old, []byte(cardMark)) {
		return nil
	}
	var b strings.Builder
	r := &e.Cfg.Run
	adapters := e.Lora != nil && r.LoRA.AdaptersOnly && !r.LoRA.Merge
	library := "transformers"
	if adapters {
		library = "peft"
	} else if t := taskOf(e.Model); t != nil && t.Library != "" {
		library = t.Library
	}
	fmt.Fprintf(&b, "---\nlibrary_name: %s\n", library)
	if base := baseName(r); base != "" {
		fmt.Fprintf(&b, "base_model: %s\n", base)
	}
	fmt.Fprintf(&b, "tags:\n- lfactor\n---\n%s\n\n# %s\n\n", cardMark, filepath.Base(filepath.Clean(dst)))
	what := "All weights"
	if e.Lora != nil {
		what = fmt.Sprintf("Adapters of rank %d", r.LoRA.Rank)
	}
	n := int64(0)
	for _, p := range e.Model.Params(e.Lora) {
		if !p.IsState() {
			n += int64(tensor.Len(p.Shape))
		}
	}
	fmt.Fprintf(&b, "%s of a model of %s parameters, trained by [lfactor](https://github.com/lfactor/lfactor).\n\n", what,
		unit.Count(float64(n)))
	b.WriteString("| | |\n|---|---|\n")
	for _, row := range e.figures() {
		fmt.Fprintf(&b, "| %s | %s |\n", row[0], row[1])
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// baseName is what a run began from, by the name that a hub has for it, or the last part of its path.
func baseName(r *configs.Run) string {
	path := r.Model.Path
	if _, rest, cached := strings.Cut(filepath.ToSlash(path), "/models--"); cached {
		name, _, _ := strings.Cut(rest, "/")
		return strings.Replace(name, "--", "/", 1)
	}
	if path == "" {
		return ""
	}
	return filepath.Base(filepath.Clean(path))
}

// figures are the rows of the page's table.
func (e *Exporter) figures() (rows [][2]string) {
	add := func(name, value string) { rows = append(rows, [2]string{name, value}) }
	r := &e.Cfg.Run
	step := e.Saved.Step()
	add("steps", fmt.Sprint(step))
	if e.Model.Task().Writes {
		add("tokens seen", unit.Count(float64(step)*float64(r.Train.GlobalBatch)*float64(r.Data.SeqLen)))
	}
	add("samples a step", fmt.Sprint(r.Train.GlobalBatch))
	add("phase", r.Train.Phase)
	add("optimizer", fmt.Sprintf("%s, rate %.4g, %s", r.Optimizer.Kind, r.Optimizer.LR, r.Schedule.Kind))
	precision := r.Train.Precision
	if low := r.Train.LowPrecision; low != "none" {
		precision += ", products in " + low
	}
	add("precision", precision)
	p := &r.Plan
	add("plan", fmt.Sprintf("pp %d · tp %d · cp %d · dp %d", p.PP, p.TP, p.CP, p.DP))
	if loss, ok := lossAt(filepath.Join(r.Log.Dir, r.Log.JSONL), step); ok {
		add("training loss of the last step", fmt.Sprintf("%.4f", loss))
	}
	return rows
}

// lossAt is the loss of a step as the run's metrics have it, where they are at hand.
func lossAt(file string, step int64) (loss float64, ok bool) {
	f, err := os.Open(file)
	if err != nil {
		return 0, false // metrics are elsewhere: the page does without
	}
	defer f.Close() //nolint:errcheck // it was read only
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<24)
	for in.Scan() {
		var m struct {
			Step int64
			Loss *float64
		}
		if json.Unmarshal(in.Bytes(), &m) == nil && m.Step == step && m.Loss != nil {
			loss, ok = *m.Loss, true
		}
	}
	return loss, ok
}
