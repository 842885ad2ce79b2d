package torch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Megatron's files in a directory, and beside the directories of iterations.
const (
	megatronFile = "metadata.json"
	latestFile   = "latest_checkpointed_iteration.txt"
	releaseDir   = "release"
)

// MegatronDir is the directory of Megatron's torch_dist, or of its older form, at a path: the path itself,
// or that of the newest iteration below; "" where there is none.
func MegatronDir(path string) string {
	if isMegatron(path) || isLegacy(path) {
		return path
	}
	text, err := os.ReadFile(filepath.Join(path, latestFile))
	if err != nil {
		return ""
	}
	dir := filepath.Join(path, releaseDir)
	var n int
	if name := strings.TrimSpace(string(text)); name != releaseDir {
		if _, err := fmt.Sscanf(name, "%d", &n); err != nil || n < 0 {
			return ""
		}
		dir = filepath.Join(path, fmt.Sprintf("iter_%07d", n))
	}
	if !isMegatron(dir) && !isLegacy(dir) {
		return ""
	}
	return dir
}

func isMegatron(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, megatronFile))
	var said struct {
		Backend string `json:"sharded_backend"`
	}
	return err == nil && json.Unmarshal(text, &said) == nil && said.Backend == "torch_dist" && IsDCP(dir)
}

// besides are beginnings of keys of what Megatron keeps beside the model.
var besides = []string{"optimizer.", "chained_", "rng_state", "rerun_state_machine", "opt_param_scheduler"}

// OpenMegatron opens a directory of Megatron's torch_dist, or of its older form, as the tensors of Hugging
// Face of the model whose config.json lies in the directory like. Every tensor of the file is used whole,
// but for rows of padding behind the vocabulary, or is of an optimizer; dropped are the keys of those. What
// is left over, or missing, or of another shape is an error.
func OpenMegatron(dir, like string) (src checkpoint.Source, dropped []string, err error) {
	g, err := readGPT(like)
	if err != nil {
		return nil, nil, err
	}
	open := OpenDCP
	if !isMegatron(dir) {
		open = func(dir string) (*DCP, error) { return openLegacy(g, dir) }
	}
	d, err := open(dir)
	if err != nil {
		return nil, nil, err
	}
	links := g.linksOf(d)
	dropped, err = g.match(d, d.said, links)
	if err != nil {
		return nil, nil, errors.Join(err, d.Close())
	}
	a, err := assemble(d, links)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", dir, err), d.Close())
	}
	return shift(a, gain, 1), dropped, nil
}

// linksOf are the links to the tensors of a source, by the names that it has where there are several.
func (g *gpt) linksOf(src checkpoint.Source) []*composed {
	have := map[string]bool{}
	for _, t := range src.Tensors() {
		have[t.Name] = true
	}
	links := g.links(g.stacks(have), func(key string) bool { return have[key] })
	return append(links, g.seen(src)...)
}

// stacks reports whether one of the keys is of all layers.
func (g *gpt) stacks(have map[string]bool) bool {
	for key := range have {
		rest, ok := strings.CutPrefix(key, g.before+"decoder.layers.")
		if ok && len(rest) > 0 && (rest[0] < '0' || rest[0] > '9') {
			return true
		}
	}
	return false
}

// seen are links of what sees, which has the same names on both sides.
func (g *gpt) seen(src checkpoint.Source) (links []*composed) {
	if g.before == "" {
		return nil
	}
	for _, t := range src.Tensors() {
		if slices.ContainsFunc(towers, func(p string) bool { return strings.HasPrefix(t.Name, p) }) &&
			len(t.Shape) > 0 {
			links = append(links, &composed{name: t.Name, rest: slices.Clone(t.Shape[1:]),
				parts: map[string][]piece{place0(nil): {{t.Name, nil, 0, t.Shape[0]}}}})
		}
	}
	return links
}

// match holds the tensors of a source to links: each is used whole, but for rows of padding behind the
// vocabulary, or is what Megatron keeps beside the model; dropped are the keys of those.
func (g *gpt) match(src checkpoint.Source, said string, links []*composed) (dropped []string, err error) {
	have := map[string]checkpoint.Info{}
	for _, t := range src.Tensors() {
		have[t.Name] = t
	}
	has := func(key string) bool { return have[key].Name != "" }
	var errs []error
	bad := func(name string, f checkpoint.Fault, format string, a ...any) {
		errs = append(errs, &checkpoint.Error{File: said, Tensor: name, Fault: f, Why: fmt.Sprintf(format, a...)})
	}
	wanted := map[string]bool{}
	for _, c := range turned(links) {
		wanted[c.name] = true
		got, want := have[c.name].Shape, c.shape()
		switch {
		case !has(c.name):
			bad(c.name, checkpoint.Missing, "the model needs it, with shape %v", want)
		case slices.Equal(got, want):
		case ofVocabulary(c.name) && len(got) == 2 && got[0] >= want[0] && got[1] == want[1]:
			// rows behind the vocabulary are padding
		default:
			bad(c.name, checkpoint.Misshapen, "shape %v, the model needs %v", got, want)
		}
	}
	for _, name := range sortedKeys(have) {
		switch {
		case wanted[name]:
		case slices.ContainsFunc(besides, func(p string) bool { return strings.HasPrefix(name, p) }):
			dropped = append(dropped, name)
		case wanted[g.also[name]]: // a norm once more, under the name of another way of building layers
			if !sameBytes(src, have[name], have[g.also[name]]) {
				bad(name, checkpoint.Extra, "is not the same as %s, which is the same norm", g.also[name])
			}
		case name == g.before+"output_layer.weight" && g.tied(): // the embedding once more
			table := have[g.before+"embedding.word_embeddings.weight"]
			if dropped = append(dropped, name); table.Name != "" && !sameBytes(src, have[name], table) {
				bad(name, checkpoint.Extra, "is not %s, though config.json has tie_word_embeddings: set that to false", table.Name)
			}
		default:
			bad(name, checkpoint.Extra, "the model has no such tensor")
		}
	}
	return dropped, errors.Join(errs...)
}

// sameBytes compares two small tensors.
func sameBytes(src checkpoint.Source, a, b checkpoint.Info) bool {
	if a.DType != b.DType || !slices.Equal(a.Shape, b.Shape) || a.Bytes > 1<<30 {
		return false
	}
	box := make([][2]int, len(a.Shape))
	for i, n := range a.Shape {
		box[i] = [2]int{0, n}
	}
	x, y := make([]byte, a.Bytes), make([]byte, a.Bytes)
	return src.ReadRanges(a.Name, box, x) == nil && src.ReadRanges(b.Name, box, y) == nil && bytes.Equal(x, y)
}

// ofVocabulary reports whether a key's rows are those of the vocabulary.
func ofVocabulary(key string) bool {
	return strings.HasSuffix(key, "word_embeddings.weight") || strings.HasSuffix(key, "output_layer.weight")
}

// WriteMegatron writes the tensors of a Hugging Face directory as Megatron's torch_dist, a release below dir,
// with layers stacked. Rows of the vocabulary are filled up to a multiple of divisible by the last one. Each part of a
// tensor that a rank of grid has lies in a file of that rank. With st, which may be nil, what an optimizer keeps comes
// with it, as Megatron's distributed optimizer writes it fully_reshardable, and one that is not distributed.
func WriteMegatron(j *checkpoint.Journal, dir string, src checkpoint.Source, like string, divisible int,
	grid Grid, st *States) error {
	g, err := readGPT(like)
	if err != nil {
		return err
	}
	x := grid.whole()
	if why := x.fits(g); why != "" {
		return &checkpoint.Error{File: dir, Fault: checkpoint.Malformed, Why: why}
	}
	divisible *= x.TP
	a, err := g.theirs(shift(src, gain, -1), like, divisible)
	if err != nil {
		return err
	}
	all := &joined{}
	all.join(a)
	if st != nil {
		for _, kind := range sortedKeys(st.Kinds) {
			x, err := g.theirs(st.Kinds[kind], like, divisible)
			if err != nil {
				return fmt.Errorf("%s of the optimizer: %w", kind, err)
			}
			name := map[string]string{checkpoint.ExpAvg: "exp_avg", checkpoint.ExpAvgSq: "exp_avg_sq",
				checkpoint.Master: "param"}[kind]
			all.join(prefixed{x, "optimizer.state." + name + "."})
		}
		if st.Kinds[checkpoint.Master] == nil { // the weights are the copies
			f32, err := checkpoint.Cast(a, "f32")
			if err != nil {
				return err
			}
			all.join(prefixed{f32, "optimizer.state.param."})
		}
	}
	return writeRelease(j, dir, all, g.extras(), g.cutter(x), st)
}

// theirs are the tensors of Megatron that those of Hugging Face make.
func (g *gpt) theirs(src checkpoint.Source, like string, divisible int) (*assembled, error) {
	list, err := g.rows(src, like, divisible)
	if err != nil {
		return nil, err
	}
	for _, key := range sortedKeys(g.also) { // Megatron's own layers and Transformer Engine's name some norms otherwise
		i := slices.IndexFunc(list, func(c *composed) bool { return c.name == g.also[key] })
		more := *list[i]
		more.name = key
		list = append(list, &more)
	}
	return assemble(src, list)
}

// rows are what Megatron's tensors are made of, of those of a Hugging Face directory, all of which are used.
func (g *gpt) rows(src checkpoint.Source, like string, divisible int) ([]*composed, error) {
	g.packs = slices.ContainsFunc(src.Tensors(), func(t checkpoint.Info) bool { return strings.HasSuffix(t.Name, ".mlp.experts.gate_up_proj") })
	links := append(g.links(g.alike() && !g.apart, func(string) bool { return false }), g.seen(src)...)
	var want []checkpoint.Info
	for _, l := range links {
		want = append(want, checkpoint.Info{Name: l.name, Shape: l.shape()})
	}
	var have []checkpoint.Info
	for _, t := range src.Tensors() {
		if strings.HasSuffix(t.Name, "rotary_emb.inv_freq") || t.Name == g.hf.head && g.tied() {
			continue // follows from the configuration; is the embedding
		}
		have = append(have, t)
	}
	if err := checkpoint.Match(like, want, have); err != nil {
		return nil, err
	}
	list := turned(links)
	for _, c := range list {
		if ofVocabulary(c.name) {
			p := c.parts[place0(nil)]
			for range (divisible - g.Vocab%divisible) % divisible {
				p = append(p, piece{p[0].from, nil, g.Vocab - 1, 1})
			}
			c.parts[place0(nil)] = p
		}
	}
	return list, nil
}

// writeRelease writes what Megatron wants around the tensors.
func writeRelease(j *checkpoint.Journal, dir string, src checkpoint.Source, extras []string,
	cut func(t checkpoint.Info) []dcpPart, st *States) error {
	name, said := releaseDir, releaseDir
	if st != nil && st.Step > 0 {
		name, said = fmt.Sprintf("iter_%07d", st.Step), fmt.Sprint(st.Step)
	}
	to := filepath.Join(dir, name)
	files, err := planDCP(to, src, extras, cut)
	if err != nil {
		return err
	}
	p := &pickler{}
	p.op(0x80, 2, '}', '(')
	p.text("checkpoint_version")
	p.op('G', 0x40, 8, 0, 0, 0, 0, 0, 0) // 3.0
	p.text("iteration")
	if p.int(st.step()); st != nil {
		p.text("optimizer")
		p.optimizer(st)
	}
	p.op('u', '.')
	common := &archives{path: filepath.Join(to, "common.pt")}
	if err := common.add("common", p.b, nil); err != nil {
		return err
	}
	files = append(files, common.planned(), checkpoint.FixedFile(filepath.Join(to, megatronFile),
		[]byte(`{"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", `+
			`"common_backend_version": 1}`)), checkpoint.FixedFile(filepath.Join(dir, latestFile), []byte(said)))
	return checkpoint.Build(j, files, nil)
}
