package data

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/actors/exit"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/pack"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
)

// packJob is what `data pack` is told.
type packJob struct {
	Input    string
	Model    string // folder with tokenizer, chat template and processor
	Template string // file; "" means the model's own
	format.PackConfig
}

func dataPack() *cobra.Command {
	var names []string
	for _, a := range pack.Algorithms() {
		names = append(names, fmt.Sprintf("  %-20s %s", a.Name, a.Doc))
	}
	c := &cobra.Command{Use: "pack [CONFIG.yaml]", Short: "Pack the samples of shards into samples of one length, offline", Args: cobra.MaximumNArgs(1),
		Long: "Samples are counted with the model's tokenizer, chat template and processor, laid into rows, and written as shards of several\n" +
			"conversations a sample. CONFIG.yaml is one of LoongForge's offline packing; flags go before it. A run that was cut off goes on\n" +
			"when it is started again.\n\nAlgorithms:\n" + strings.Join(names, "\n")}
	var j packJob
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
			if err := j.load(args[0], func(flag string) bool { return c.Flags().Changed(flag) }); err != nil {
				return exit.With(err, exit.Usage)
			}
		}
		return j.run(c)
	}
	return c
}

func (j *packJob) run(c *cobra.Command) error {
	for name, v := range map[string]string{"--input": j.Input, "--output_dir": j.OutputDir, "--model": j.Model} {
		if v == "" {
			return exit.Usagef("%s is not given", name)
		}
	}
	src, err := dataset.Open(j.Input, dataset.Options{})
	if err != nil {
		return err
	}
	defer src.Close()
	j.Source = src
	if j.Encoder, err = setup.VisionEncoder(j.Model, j.Template, j.SampleType); err != nil {
		return err
	}
	p := newProgress(c.ErrOrStderr())
	j.Progress = func(step string, done, all int64, stages []dataset.Stage) { p.show(done, all, 0, step, stages) }
	r, err := format.PackShards(c.Context(), j.PackConfig)
	if err != nil {
		return dataError(c.Context(), err)
	}
	return cli.Emit(c, r, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %d samples in %d packs of %d tokens, %.1f %% full, in %d shards\n", j.OutputDir, r.Samples, r.Packs, j.Tokens, 100*r.Fill, r.Shards)
		fmt.Fprintf(w, "not packed: %d over %d tokens, %d left by the algorithm, %d set aside\n", r.Overlong, j.Tokens, r.Left, r.Bad)
	})
}

// loongPack is LoongForge's configuration of offline packing. What is about its processes and files between steps has
// no meaning here and is taken as it is.
type loongPack struct {
	Data struct {
		InputFormat string `yaml:"input_format"`
		WDSDir      string `yaml:"wds_dir"`
		TextKey     string `yaml:"template_text_key"`
		PackedDir   string `yaml:"packed_wds_dir"`
		WorkDir     string `yaml:"work_dir"`
	} `yaml:"data"`
	Model struct {
		Type      string         `yaml:"model_type"`
		Loader    string         `yaml:"processor_loader"`
		HF        bool           `yaml:"use_hf_chat_template"`
		Template  string         `yaml:"chat_template_path"`
		Extra     map[string]any `yaml:"chat_template_kwargs"`
		Processor struct {
			Path      string `yaml:"pretrained_model_name_or_path"`
			MinPixels int    `yaml:"min_pixels"`
			MaxPixels int    `yaml:"max_pixels"`
			Trust     bool   `yaml:"trust_remote_code"`
			Fast      bool   `yaml:"use_fast"`
		} `yaml:"processor_kwargs"`
	} `yaml:"model"`
	Media  map[string]any `yaml:"media_preprocess"`
	Sample struct {
		Tokens int    `yaml:"max_token_len"`
		Type   string `yaml:"sample_type"`
	} `yaml:"sample"`
	Packing struct {
		Algorithm string `yaml:"algorithm"`
		Validate  bool   `yaml:"validate_pack_plan"`
	} `yaml:"packing"`
	Artifacts map[string]any `yaml:"artifacts"`
	Packed    struct {
		MaxSize  float64 `yaml:"maxsize"`
		MaxCount float64 `yaml:"maxcount"`
	} `yaml:"packed_wds"`
	Process map[string]any `yaml:"process"`
	Log     map[string]any `yaml:"log"`
}

// load takes what a configuration says into the job, where no flag says otherwise.
func (j *packJob) load(file string, flagged func(string) bool) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var l loongPack
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&l); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if len(l.Media) > 0 || len(l.Model.Extra) > 0 {
		return fmt.Errorf("%s: media_preprocess and chat_template_kwargs would count other tokens than training sees; remove them", file)
	}
	if err := samePixels(file, l.Model.Processor.Path, l.Model.Processor.MinPixels, l.Model.Processor.MaxPixels); err != nil {
		return err
	}
	set := func(flag string, into *string, v string) {
		if v != "" && !flagged(flag) {
			*into = v
		}
	}
	set("input", &j.Input, l.Data.WDSDir)
	set("output_dir", &j.OutputDir, l.Data.PackedDir)
	set("model", &j.Model, l.Model.Processor.Path)
	set("template", &j.Template, l.Model.Template)
	set("packed_type", &j.PackedType, l.Sample.Type)
	if !flagged("algorithm") {
		j.Algorithm = "hashbucket" // LoongForge's own default
		set("algorithm", &j.Algorithm, l.Packing.Algorithm)
	}
	if l.Sample.Tokens > 0 && !flagged("max-tokens") {
		j.Tokens = l.Sample.Tokens
	}
	if l.Packed.MaxCount > 0 && !flagged("maxcount") {
		j.MaxCount = int64(l.Packed.MaxCount)
	}
	if l.Packed.MaxSize > 0 && !flagged("maxsize") {
		j.MaxSize = int64(l.Packed.MaxSize)
	}
	if l.Data.InputFormat != "" && l.Data.InputFormat != "wds" {
		return fmt.Errorf("%s: data.input_format %q; packing reads wds", file, l.Data.InputFormat)
	}
	if info, err := os.Stat(j.Input); err == nil && info.IsDir() {
		if _, err := os.Stat(filepath.Join(j.Input, ".nv-meta")); err != nil {
			j.Input = filepath.Join(j.Input, "*.tar")
		}
	}
	return nil
}

// samePixels refuses bounds of pixels that are not the model's own, which training goes by.
func samePixels(file, model string, least, most int) error {
	b, err := os.ReadFile(filepath.Join(model, "preprocessor_config.json"))
	if err != nil || least == 0 && most == 0 {
		return nil // the model is looked at later
	}
	var own struct {
		Min  int `yaml:"min_pixels"`
		Max  int `yaml:"max_pixels"`
		Size struct {
			Min int `yaml:"shortest_edge"`
			Max int `yaml:"longest_edge"`
		} `yaml:"size"`
	}
	if err := yaml.Unmarshal(b, &own); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(model, "preprocessor_config.json"), err)
	}
	if own.Min == 0 && own.Max == 0 {
		own.Min, own.Max = own.Size.Min, own.Size.Max
	}
	if least != 0 && least != own.Min || most != 0 && most != own.Max {
		return fmt.Errorf("%s: min_pixels %d and max_pixels %d would count other tokens than training sees, whose bounds are %d and %d; set them in %s", file, least, most, own.Min, own.Max, filepath.Join(model, "preprocessor_config.json"))
	}
	return nil
}

// dataTokenize is the preprocessing of texts for pretraining.
func dataTokenize() *cobra.Command {
	c := &cobra.Command{Use: "tokenize --input PATH --hf-tokenizer-path DIR --output-prefix PREFIX", Short: "Write texts as token ids in Megatron's .bin and .idx", Args: cobra.NoArgs,
		Long: "The options are those of LoongForge's and Megatron-LM's preprocessing; the files are PREFIX_text_document.bin and .idx, as theirs."}
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
			if end, err = eodOf(tok, conf); err != nil {
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
		err = format.Tokenize(src, tok, out, format.TokenizeOptions{Vocab: tok.VocabSize(), EOD: end, Quarantine: q, Workers: workers, Budget: dataset.Budget{Count: budget}, Context: c.Context(),
			Progress: func(done int64) { p.show(done, src.Len(), 0, fmt.Sprintf("%d set aside", len(q.List())), nil) }})
		if err != nil {
			return dataError(c.Context(), err)
		}
		r := tokenizeReport{Documents: src.Len(), Bad: q.List(), Prefix: out}
		return cli.Emit(c, r, func(w io.Writer) {
			fmt.Fprintf(w, "%s.bin and .idx: %d documents\n", out, r.Documents)
			for _, b := range r.Bad {
				fmt.Fprintf(w, "set aside: %s: %s\n", b.Place, b.Reason)
			}
		})
	}
	return c
}

type tokenizeReport struct {
	Prefix    string        `json:"prefix"`
	Documents int64         `json:"documents"`
	Bad       []dataset.Bad `json:"bad"`
}

// eodOf is the token that ends a document.
func eodOf(t *token.Tokenizer, c *token.Config) (int32, error) {
	names := []string{"<|endoftext|>", "<|end_of_text|>", "</s>", c.EOS}
	if i := slices.IndexFunc(names, func(n string) bool { _, ok := t.TokenID(n); return ok }); i >= 0 {
		id, _ := t.TokenID(names[i])
		return id, nil
	}
	return 0, fmt.Errorf("the tokenizer has none of the tokens %q that end a document", names)
}
