package data

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"math/bits"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/exit"
	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// lintKeysMax bounds the keys that are compared for doubles: about 1 GiB.
const lintKeysMax = 1 << 24

// lintReport is what is wrong with data.
type lintReport struct {
	Documents int64               `json:"documents"`
	Bad       int64               `json:"bad"`
	Findings  []string            `json:"findings"`
	Run       *dataset.Inspection `json:"run,omitempty"` // of --config
	keys      map[uint64]bool
	seed      maphash.Seed
}

// lintFindingsMax bounds the list; more are counted.
const lintFindingsMax = 10_000

func (r *lintReport) find(format string, args ...any) {
	r.Bad++
	if len(r.Findings) < lintFindingsMax {
		r.Findings = append(r.Findings, fmt.Sprintf(format, args...))
	}
}

func dataLint() *cobra.Command {
	c := &cobra.Command{Use: "lint [PATH…] [--config RUN.yaml]", Short: "Read data to the end and list what training would set aside",
		Long: "With --config the training data of that run is read as the run would: with its tokenizer, chat template, processor and lengths; words behind\n" +
			"are KEY=VALUE. Without, files are read, and with --model also made tokens of. Also reported are samples with the key of an earlier one,\n" +
			"and shards of an Energon data set that have other counts than it says. The exit code is 4 if anything is found."}
	o, named := openFlags(c), &sftFlags{}
	named.add(c)
	var config, model string
	c.Flags().StringVar(&config, "config", "", "file of a run whose training data is read as it would read it")
	c.Flags().StringVar(&model, "model", "", "folder of a model, whose tokenizer has to know all ids and whose template all conversations")
	c.RunE = func(c *cobra.Command, args []string) error {
		r := &lintReport{keys: map[uint64]bool{}, seed: maphash.MakeSeed()}
		if config == "" && len(args) == 0 {
			return exit.Usagef("name a PATH, or a run's file with --config")
		}
		if config != "" {
			if err := r.run(c, config, args); err != nil {
				return err
			}
			return r.report(c)
		}
		for _, path := range args {
			o, err := named.options(*o, path)
			if err != nil {
				return err
			}
			if err := r.lint(c, path, model, o); err != nil {
				return err
			}
		}
		return r.report(c)
	}
	return c
}

// run lints the training data of a run.
func (r *lintReport) run(c *cobra.Command, config string, args []string) error {
	in, err := run.Inspect(c.Context(), config, args, func(b dataset.Bad) { r.find("%s document %d: %s: %s", b.Source, b.Document, b.Place, b.Reason) })
	if c.Context().Err() != nil {
		return exit.With(errors.New("interrupted"), exit.Interrupted)
	}
	r.Documents, r.Run = in.Documents, &in
	return err
}

// report writes what was found.
func (r *lintReport) report(c *cobra.Command) error {
	err := cli.Emit(c, r, func(w io.Writer) {
		for _, f := range r.Findings {
			fmt.Fprintln(w, f)
		}
		if r.Run != nil {
			fmt.Fprintf(w, "%d tokens; %d documents are longer than a row, of %d nothing would be learnt\n", r.Run.Tokens, r.Run.Long, r.Run.Unlearnt)
		}
		fmt.Fprintf(w, "%d documents, %d findings\n", r.Documents, r.Bad)
	})
	if err == nil && r.Bad > 0 {
		err = exit.With(fmt.Errorf("%d findings in %d documents", r.Bad, r.Documents), exit.Data)
	}
	return err
}

func (r *lintReport) lint(c *cobra.Command, path, model string, o dataset.Options) error {
	s, err := dataset.Open(path, o)
	if err != nil {
		return err
	}
	defer s.Close()
	count := func(*dataset.Document) (int64, error) { return 0, nil }
	if model != "" {
		if count, err = newTokenCounter(model, "", s.Kind(), o.Tags); err != nil {
			return err
		}
	}
	r.Documents += s.Len()
	err = eachDocument(c, s, func(i int64, d *dataset.Document) {
		if _, err := count(d); err != nil {
			r.find("%s: %v", d.Place, err)
		}
		h := maphash.String(r.seed, d.Key)
		if d.Parts != nil && r.keys[h] {
			r.find("%s: the key %q is there before", d.Place, d.Key)
		}
		if d.Parts != nil && len(r.keys) < lintKeysMax {
			r.keys[h] = true
		}
		if d.Parts != nil && o.Tags != (dataset.Tags{}) {
			if _, err := format.ConverseTagged(d, "", o.Tags); err != nil {
				r.find("%v", err)
			}
		}
	}, func(i int64, b *dataset.BadSample) { r.find("%s", b) })
	if e, bad := format.ReadEnergon(path); err == nil && bad == nil {
		return r.counts(e)
	}
	return err
}

// counts compares what an Energon data set says of its shards with what they hold.
func (r *lintReport) counts(e *format.Energon) error {
	have, err := e.Count()
	if err != nil {
		return err
	}
	for _, n := range slices.Sorted(maps.Keys(have)) {
		if want, ok := e.Counts[n]; !ok || want != have[n] {
			r.find("%s: it holds %d samples, .info.json says %d; run `energon prepare` again", n, have[n], want)
		}
	}
	return nil
}

// statReport is the make-up of data.
type statReport struct {
	Kind      dataset.Kind        `json:"kind"`
	Documents int64               `json:"documents"`
	Bad       int64               `json:"bad"`
	Units     int64               `json:"units"`     // tokens, or bytes of text or files
	Histogram []int64             `json:"histogram"` // documents of 2^(i-1) to 2^i-1 units; the first has none
	Parts     map[string]partStat `json:"parts,omitempty"`
	Messages  int64               `json:"messages,omitempty"`
	Modality  map[string]int64    `json:"modality,omitempty"` // documents by what they hold: "text", "1 image", "2 images and 1 video"
	tokens    tokenCounter        // nil: lengths are bytes
}

// statPartsMax bounds the names that are counted apart.
const statPartsMax = 10_000

type partStat struct {
	Count int64 `json:"count"`
	Bytes int64 `json:"bytes"`
}

func dataStat() *cobra.Command {
	c := &cobra.Command{Use: "stat PATH…", Short: "Count documents, their lengths and parts", Args: cobra.MinimumNArgs(1),
		Long: "Lengths are bytes; with --model they are tokens, as training would see them, and documents that give none are bad."}
	o, named := openFlags(c), &sftFlags{}
	named.add(c)
	var model, kind string
	c.Flags().StringVar(&model, "model", "", "folder of a model, to count its tokens")
	c.Flags().StringVar(&kind, "sample_type", "", "type of the samples; by default each tells")
	c.RunE = func(c *cobra.Command, args []string) error {
		r := &statReport{Parts: map[string]partStat{}, Modality: map[string]int64{}}
		for _, path := range args {
			o, err := named.options(*o, path)
			if err != nil {
				return err
			}
			s, err := dataset.Open(path, o)
			if err != nil {
				return err
			}
			r.Kind = s.Kind()
			r.Documents += s.Len()
			if model != "" {
				if r.tokens, err = newTokenCounter(model, kind, s.Kind(), o.Tags); err != nil {
					return errors.Join(err, s.Close())
				}
			}
			err = eachDocument(c, s, func(_ int64, d *dataset.Document) { r.count(d) }, func(int64, *dataset.BadSample) { r.Bad++ })
			_ = s.Close() // read-only files
			if err != nil {
				return err
			}
		}
		return cli.Emit(c, r, r.write)
	}
	return c
}

func (r *statReport) count(d *dataset.Document) {
	tokens := int64(0)
	if r.tokens != nil {
		var err error
		if tokens, err = r.tokens(d); err != nil {
			r.Bad++
			return
		}
	}
	n := int64(len(d.Text) + len(d.Tokens))
	for _, m := range d.Messages {
		n += int64(max(len(m.Content), len(m.Raw)))
	}
	r.Messages += int64(len(d.Messages))
	if d.Parts != nil {
		m := modality(d)
		if _, ok := r.Modality[m]; !ok && len(r.Modality) >= statPartsMax {
			m = "(others)"
		}
		r.Modality[m]++
	}
	for _, p := range d.Parts {
		n += int64(len(p.Bytes))
		name := partKind(p.Name)
		if _, ok := r.Parts[name]; !ok && len(r.Parts) >= statPartsMax {
			name = "(others)"
		}
		s := r.Parts[name]
		r.Parts[name] = partStat{s.Count + 1, s.Bytes + int64(len(p.Bytes))}
	}
	if r.tokens != nil {
		n = tokens
	}
	r.Units += n
	b := bits.Len64(uint64(n))
	for len(r.Histogram) <= b {
		r.Histogram = append(r.Histogram, 0)
	}
	r.Histogram[b]++
}

// numbered matches the names that converters give to media, the file's own name behind a number.
var numbered = regexp.MustCompile(`^s?[0-9]+_.*(\.[^.]*)$`)

// partKind is a part's name, or what the names of numbered media have in common.
func partKind(name string) string {
	if m := numbered.FindStringSubmatch(name); m != nil {
		return "*" + m[1]
	}
	return name
}

// modality tells what a sample holds by the names of its files.
func modality(d *dataset.Document) string {
	counts := map[dataset.MediaKind]int{}
	for _, p := range d.Parts {
		switch kind := format.KindOfName(p.Name); {
		case kind != dataset.Image:
			counts[kind]++
		case format.IsPicture(p.Name):
			counts[dataset.Image]++
		}
	}
	var words []string
	for _, k := range []dataset.MediaKind{dataset.Image, dataset.Video, dataset.Audio} {
		if n := counts[k]; n == 1 {
			words = append(words, "1 "+string(k))
		} else if n > 1 {
			words = append(words, fmt.Sprintf("%d %ss", n, k))
		}
	}
	if len(words) == 0 {
		return "text"
	}
	return strings.Join(words, " and ")
}

// barWidth is the longest bar of a histogram, in characters.
const barWidth = 50

func (r *statReport) write(w io.Writer) {
	unit := "bytes"
	if r.Kind == dataset.KindTokens || r.tokens != nil {
		unit = "tokens"
	}
	fmt.Fprintf(w, "%d documents (%s), %d bad, %d %s\n", r.Documents, r.Kind, r.Bad, r.Units, unit)
	if r.Messages > 0 {
		fmt.Fprintf(w, "%d messages\n", r.Messages)
	}
	for _, n := range slices.Sorted(maps.Keys(r.Parts)) {
		fmt.Fprintf(w, "part %-12s %10d times %14d bytes\n", n, r.Parts[n].Count, r.Parts[n].Bytes)
	}
	most := int64(1)
	for _, n := range r.Modality {
		most = max(most, n)
	}
	for _, m := range slices.Sorted(maps.Keys(r.Modality)) {
		n := r.Modality[m]
		fmt.Fprintf(w, "%-24s %10d %s\n", m, n, strings.Repeat("█", int((n*barWidth+most-1)/most)))
	}
	most = 1
	for _, n := range r.Histogram {
		most = max(most, n)
	}
	for i, n := range r.Histogram {
		if n > 0 {
			fmt.Fprintf(w, "below %12d %s %10d %s\n", int64(1)<<i, unit, n, strings.Repeat("█", int((n*barWidth+most-1)/most)))
		}
	}
}
