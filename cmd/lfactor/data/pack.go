package data

import (
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/jobs"
	"github.com/lfactor/lfactor/dataset/pack"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
)

func dataPack() *cobra.Command {
	var names []string
	for _, a := range pack.Algorithms() {
		names = append(names, fmt.Sprintf("  %-20s %s", a.Name, a.Doc))
	}
	c := &cobra.Command{Use: "pack [CONFIG.yaml]",
		Short: "Pack the samples of shards into samples of one length, offline", Args: cobra.MaximumNArgs(1),
		Long: "Samples are counted with the model's tokenizer, chat template and processor, laid into rows, " +
			"and written as shards of several\nconversations a sample. CONFIG.yaml is one of LoongForge's offline " +
			"packing; flags go before it. A run that was cut off goes on\nwhen it is started again.\n\nAlgorithms:\n" +
			strings.Join(names, "\n")}
	var j setup.PackJob
	f := c.Flags()
	f.StringVar(&j.Input, "input", "", "shards to pack: a folder of Energon's, a shard or a pattern")
	f.StringVar(&j.OutputDir, "output_dir", "", "folder to write packed shards into")
	f.StringVar(&j.Model, "model", "", "folder of the model: tokenizer, chat template, processor")
	f.StringVar(&j.Template, "template", "", "chat template in Jinja; by default the model's own")
	f.IntVar(&j.Tokens, "max-tokens", 8192, "tokens of a packed sample")
	f.IntVar(&j.Images, "max-images", 0, "images and videos of a packed sample; 0 means any number")
	f.StringVar(&j.Algorithm, "algorithm", "best-fit-decreasing", "how samples are laid into rows")
	f.StringVar(&j.SampleType, "sample_type", "", "type of the input's samples; by default each sample tells")
	f.StringVar(&j.PackedType, "packed_type", "packed_chat_mix", "packed_chat_mix or packed_multi_mix_qa")
	f.Int64Var(&j.MaxCount, "maxcount", 10_000, "packed samples of a shard")
	f.Int64Var(&j.MaxSize, "maxsize", 2_000_000_000, "bytes of files of a shard")
	f.IntVar(&j.Workers, "workers", runtime.NumCPU(), "samples counted at once")
	f.Int64Var(&j.Budget.Count, "quarantine", 100, "samples that may be set aside before it stops with exit code 4")
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			if err := j.Load(args[0], func(flag string) bool { return c.Flags().Changed(flag) }); err != nil {
				return exit.With(err, exit.Usage)
			}
		}
		return runPack(c, &j)
	}
	spreads(c, func(args []string) []string { return args })
	return c
}

// runPack carries out a job and prints what it did.
func runPack(c *cobra.Command, j *setup.PackJob) error {
	for name, v := range map[string]string{"--input": j.Input, "--output_dir": j.OutputDir, "--model": j.Model} {
		if v == "" {
			return exit.Usagef("%s is not given", name)
		}
	}
	p := newProgress(c.ErrOrStderr())
	j.Progress = func(step string, done, all int64, stages []dataset.Stage) {
		p.show(done, all, 0, step, stages)
	}
	return everywhere(c, j.OutputDir, j.Work, func(hosts dataset.Remote) error {
		j.Elsewhere = hosts
		r, err := j.Run(c.Context())
		if err != nil {
			return dataError(c.Context(), err)
		}
		return cli.Emit(c, r, func(w io.Writer) {
			fmt.Fprintf(w, "%s: %d samples in %d packs of %d tokens, %.1f %% full, in %d shards\n", j.OutputDir,
				r.Samples, r.Packs, j.Tokens, 100*r.Fill, r.Shards)
			fmt.Fprintf(w, "not packed: %d over %d tokens, %d left by the algorithm, %d set aside\n", r.Overlong,
				j.Tokens, r.Left, r.Bad)
		})
	})
}

// dataTokenize is the preprocessing of texts for pretraining.
func dataTokenize() *cobra.Command {
	c := &cobra.Command{Use: "tokenize --input PATH --hf-tokenizer-path DIR --output-prefix PREFIX",
		Short: "Write texts as token ids in Megatron's .bin and .idx", Args: cobra.NoArgs,
		Long: "The options are those of LoongForge's and Megatron-LM's preprocessing; the files are " +
			"PREFIX_text_document.bin and .idx, as theirs."}
	var input, tokenizer, prefix, keys string
	var eod bool
	var workers int
	var budget int64
	f := c.Flags()
	f.StringVar(&input, "input", "", "texts: a file, folder or pattern in any format of texts")
	f.StringVar(&tokenizer, "hf-tokenizer-path", "", "folder with tokenizer.json")
	f.StringVar(&prefix, "output-prefix", "", "path of the files without their ending")
	f.StringVar(&keys, "json-keys", "text", "key or column that holds the text")
	f.BoolVar(&eod, "append-eod", false, "write the end-of-document token behind each text")
	f.IntVar(&workers, "workers", runtime.NumCPU(), "documents made tokens of at once")
	f.Int64Var(&budget, "quarantine", 100, "documents that may be set aside before it stops with exit code 4")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if input == "" || tokenizer == "" || prefix == "" {
			return exit.Usagef("--input, --hf-tokenizer-path and --output-prefix must be given")
		}
		tok, conf, err := token.LoadDir(tokenizer)
		if err != nil {
			return err
		}
		end := int32(-1)
		if eod {
			if end, err = setup.EndOfDocument(tok, conf); err != nil {
				return err
			}
		}
		src, err := dataset.Open(input, dataset.Options{TextKey: keys})
		if err != nil {
			return err
		}
		defer src.Close()
		q, err := dataset.OpenQuarantine("")
		if err != nil {
			return err
		}
		p := newProgress(c.ErrOrStderr())
		out := prefix + "_" + keys + "_document"
		o := jobs.TokenizeOptions{Vocab: tok.VocabSize(), EOD: end, Quarantine: q, Workers: workers,
			Budget: dataset.Budget{Count: budget}, Context: c.Context(), Progress: func(done int64) {
				p.show(done, src.Len(), 0, fmt.Sprintf("%d set aside", len(q.List())), nil)
			}}
		return everywhere(c, out, func() (dataset.Work, func(), error) {
			return jobs.TokenizeWork(src, tok, o), func() {}, nil
		}, func(hosts dataset.Remote) error {
			o.Elsewhere = hosts
			if err := jobs.Tokenize(src, tok, out, o); err != nil {
				return dataError(c.Context(), err)
			}
			r := tokenizeReport{Documents: src.Len(), Bad: q.List(), Prefix: out}
			r.Written = r.Documents - int64(len(r.Bad))
			return cli.Emit(c, r, func(w io.Writer) { writeTokenize(w, r) })
		})
	}
	spreads(c, noFiles)
	return c
}

// writeTokenize writes a report for people.
func writeTokenize(w io.Writer, r tokenizeReport) {
	fmt.Fprintf(w, "%s.bin and .idx: %d of %d documents have ids; %d set aside are empty there\n", r.Prefix,
		r.Written, r.Documents, len(r.Bad))
	for _, b := range r.Bad {
		fmt.Fprintf(w, "set aside: %s: %s\n", b.Place, b.Reason)
	}
}

type tokenizeReport struct {
	Prefix    string        `json:"prefix"`
	Documents int64         `json:"documents"` // read
	Written   int64         `json:"written"`   // with ids; the others are empty, so that numbers stay the same
	Bad       []dataset.Bad `json:"bad"`
}
