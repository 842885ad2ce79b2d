package ckpt

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/checkpoint/gguf"
	"github.com/lfactor/lfactor/stages/checkpoint/quant"
	"github.com/lfactor/lfactor/stages/checkpoint/torch"
	"github.com/lfactor/lfactor/stages/trained"
	"github.com/lfactor/lfactor/topology/machine"
)

// conversion is what the flags of ckpt convert say.
type conversion struct {
	to, dtype string
	like      string
	divisible int
	overwrite bool
	average   bool
	merge     bool
	base      string
	shard     configs.Bytes
	quantize  string
	calibrate trained.Calibration
	asTrained bool // --quantize is of train.qat
	text      string
	upcycle   int
	each      int
	seed      uint64
	noProbe   bool
	limit     configs.Bytes
	key       string // names the conversion: all that its bytes follow from
	journal   *checkpoint.Journal
	src, goal string // the whole conversion's, where this is of a part
	noOptim   bool
	grid      torch.Grid
}

// forms are those of a destination.
var forms = []string{"hf", "gguf", "torch", "dcp", "megatron", "megatron-ranks", "lfactor"}

// shardBytes is the size of an export's files.
const shardBytes = 5 << 30

// ckptConvertCommand converts between a run's checkpoints, Hugging Face directories, GGUF and PyTorch's
// files, or with --upcycle makes a mixture of experts of a dense model.
func ckptConvertCommand() *cobra.Command {
	c := &cobra.Command{Use: "convert SRC DST", Short: "Export a run's checkpoint as a Hugging Face " +
		"directory (or its adapters as PEFT's), and convert from and to GGUF, PyTorch's files and Megatron's",
		Args: cobra.ExactArgs(2)}
	var o conversion
	f := c.Flags()
	f.BoolVar(&o.overwrite, "overwrite", false, "replace the files of a DST that has some")
	f.StringVar(&o.to, "to", "", "form of DST: hf, a Hugging Face directory with safetensors; gguf, one file; torch, "+
		"pytorch_model.bin; dcp, torch.distributed.checkpoint; megatron, torch_dist; megatron-ranks, Megatron's "+
		"older form, a file for each rank; lfactor, a checkpoint that a run goes on from. gguf where DST ends in "+
		".gguf, else hf")
	f.StringVar(&o.dtype, "dtype", "", "of the weights: f32, f16 or bf16, and for GGUF "+
		strings.Join(gguf.Written()[3:], ", ")+" too; as in SRC where it is not said")
	f.StringVar(&o.like, "like", "", "Hugging Face directory with config.json and tokenizer of the model, "+
		"for a SRC that has neither")
	o.megatronFlags(c)
	f.BoolVar(&o.merge, "merge", false, "add adapters to the weights: those of a SRC that is PEFT's directory to "+
		"the model that it names, or those of a run's checkpoint")
	f.StringVar(&o.base, "base", "", "with --merge: the model that PEFT's adapters of SRC add to, a Hugging Face "+
		"directory or the name of a repository in its cache, where it is not the one that they name")
	o.quantizeFlags(c)
	limit := o.probeFlags(c)
	var shard string
	f.StringVar(&shard, "shard-size", "", "most of a file of a Hugging Face directory, as in 2GB or 500MiB; 5GiB "+
		"where it is not said")
	f.IntVar(&o.upcycle, "upcycle", 0, "make a mixture of so many experts of SRC, a Hugging Face directory of a "+
		"dense model: each is a copy of its layer's MLP")
	f.IntVar(&o.each, "experts-per-token", 2, "with --upcycle: experts that a token goes to")
	f.Uint64Var(&o.seed, "seed", 1234, "with --upcycle: of the routers, which begin at random")
	f.BoolVar(&o.average, "ema", false, "export the average of the weights that optimizer.ema keeps")
	c.RunE = func(c *cobra.Command, args []string) error {
		var err error
		if o.shard, err = configs.ParseBytes(cmp.Or(shard, "0")); err != nil || shard != "" && o.shard < 1 {
			return exit.Usagef("--shard-size %s: want a size, as in 2GB", shard)
		}
		if o.limit, err = configs.ParseBytes(*limit); err != nil || o.noProbe && c.Flags().Changed("probe-limit") {
			return exit.Usagef("--probe-limit %s: want a size, as in 4GiB, and no --no-probe", *limit)
		}
		if err := o.check(c, args); err != nil {
			return err
		}
		if err := o.whole(c, args[0], args[1]); err != nil {
			return err
		}
		return cli.Emit(c, map[string]string{"path": args[1]},
			func(io.Writer) { fmt.Fprintln(os.Stderr, "wrote", args[1]) })
	}
	return c
}

// whole converts, or goes on with a conversion that was interrupted, and compares logits.
func (o *conversion) whole(c *cobra.Command, src, dst string) error {
	_, other := o.journal.Begun()
	if err := o.journal.Begin(); err != nil {
		return err
	}
	if other && o.to != "gguf" {
		if err := checkpoint.RemovePartial(dst); err != nil {
			return err
		}
	}
	end := growing(c.ErrOrStderr(), dst)
	err := o.convert(c, src, dst)
	if end(); err == nil {
		err = o.probe(c.ErrOrStderr(), src, dst)
	}
	return errors.Join(err, o.journal.Drop()) // not before: a repetition is refused where there are files and no journal
}

// check holds flags to each other and to what is at the destination.
func (o *conversion) check(c *cobra.Command, args []string) error {
	if o.to == "" {
		if o.to = "hf"; strings.HasSuffix(args[1], gguf.Ext) {
			o.to = "gguf"
		}
	}
	if err := o.begin(args[0], args[1]); err != nil {
		return err
	}
	other := foreign(args[0])
	switch {
	case !slices.Contains(forms, o.to):
		return exit.Usagef("--to %s: want one of %s", o.to, strings.Join(forms, ", "))
	case o.dtype != "" && !slices.Contains(gguf.Written(), o.dtype):
		return exit.Usagef("--dtype %s: want one of %s", o.dtype, strings.Join(gguf.Written(), ", "))
	case o.to != "gguf" && gguf.FewBits(o.dtype):
		return exit.Usagef("--dtype %s is for GGUF: say --to gguf too", o.dtype)
	case o.dtype != "" && o.to == "hf" && !other && !quant.IsAdapter(args[0]) && !folder(args[0]):
		return exit.Usagef("--dtype is for what is converted from or to another form; a run's " +
			"checkpoint is exported in the type of the weights that it began with")
	case o.shard > 0 && o.to != "hf":
		return exit.Usagef("--shard-size is for Hugging Face directories")
	case pickledAdapter(args[0]):
		return exit.Usagef("%s has adapter_model.bin, a pickle, and no %s: load it by PEFT, and save it by save_pretrained, which writes "+
			"that", args[0], checkpoint.AdapterName)
	case quant.IsAdapter(args[0]) && !o.merge:
		return exit.Usagef("%s has adapters alone: say --merge to add them to their model", args[0])
	case o.merge && (other || folder(args[0]) && !quant.IsAdapter(args[0])):
		return exit.Usagef("--merge: %s has no adapters", args[0])
	case o.base != "" && !(o.merge && quant.IsAdapter(args[0])):
		return exit.Usagef("--base is for --merge of PEFT's adapters")
	case o.upcycle != 0 && (o.to != "hf" || other):
		return exit.Usagef("--upcycle makes a Hugging Face directory of one")
	case strings.HasSuffix(args[0], gguf.Ext) && o.to == "gguf":
		return exit.Usagef("%s is GGUF already: convert it to a Hugging Face directory, and that to another type",
			args[0])
	}
	if err := cmp.Or(o.checkMegatron(c), o.checkQuantize(c)); err != nil {
		return err
	}
	for _, flag := range []string{"experts-per-token", "seed"} {
		if c.Flags().Changed(flag) && !c.Flags().Changed("upcycle") {
			return exit.Usagef("--%s is for --upcycle, which makes a mixture of a dense model; say "+
				"that too, or leave it out", flag)
		}
	}
	if o.upcycle == 0 && c.Flags().Changed("upcycle") {
		return exit.Usagef("--upcycle 0: want a number of experts")
	}
	return o.vacant(args[1])
}

// convert makes dst of src, whatever the two are: by way of a Hugging Face directory, unless one of them is one.
func (o *conversion) convert(c *cobra.Command, src, dst string) error {
	if folder(src) && !foreign(src) && !quant.IsAdapter(src) {
		if err := trained.Whole(src); err != nil {
			return err
		}
	}
	if o.upcycle != 0 {
		if err := trained.Upcycle(src, dst, o.upcycle, o.each, o.seed); err != nil {
			return fmt.Errorf("upcycling %s: %w", src, err)
		}
		return nil
	}
	if o.quantize != "" {
		return o.rounded(c, src, dst)
	}
	if o.to == "hf" {
		return o.folder(src, dst, o.dtype)
	}
	if folder(src) && (o.to == "gguf" || !quantized(src)) { // GGUF reads few bits by itself
		return o.placed(src, dst)
	}
	return o.between(src, dst, func(dir string) error { return o.placed(dir, dst) })
}

// placed makes dst of a Hugging Face directory, but of one that dst has no place for.
func (o *conversion) placed(dir, dst string) error {
	if o.goal != "lfactor" && trained.Scores(dir) {
		return exit.Usagef("%s is a model of rewards, and %s has no place for its head of scores: convert it to a Hugging Face "+
			"directory, which transformers' class for sequences loads", o.src, o.goal)
	}
	if trained.Embeds(dir) {
		return exit.Usagef("%s is a model of embeddings, and %s has no place for how a text's vector is made: use it as the "+
			"Hugging Face directory that it is", o.src, o.goal)
	}
	return o.from(dir, dst)
}

// folder makes a Hugging Face directory of src.
func (o *conversion) folder(src, dst, dtype string) error {
	form := trained.Form{DType: dtype, Shard: int64(o.shard), Journal: o.journal}
	switch {
	case quant.IsAdapter(src):
		return trained.Merge(src, o.base, dst, form)
	case folder(src) && !foreign(src):
		if dtype == "" && o.shard == 0 && !quantized(src) {
			break
		}
		return trained.Rewrite(src, "", dst, form)
	case strings.HasSuffix(src, gguf.Ext):
		return gguf.Import(o.journal, src, dst, dtype, cmp.Or(int64(o.shard), shardBytes))
	case foreign(src) && !checkpoint.IsDir(src):
		return o.fromTorch(src, dst, dtype)
	}
	return o.export(src, dst)
}

// pickledAdapter reports whether a path is an adapter as older versions of PEFT save it.
func pickledAdapter(path string) bool {
	return !quant.IsAdapter(path) && machine.Exists(filepath.Join(path, checkpoint.AdapterConfigName)) &&
		machine.Exists(filepath.Join(path, "adapter_model.bin"))
}

// folder reports whether a path is a Hugging Face directory.
func folder(path string) bool {
	return machine.Exists(filepath.Join(path, "config.json")) && checkpoint.IsDir(path)
}

// quantized reports whether a Hugging Face directory has weights in few bits.
func quantized(dir string) bool {
	src, err := checkpoint.OpenDir(dir)
	if err != nil {
		return false // who opens it next says so
	}
	defer src.Close()
	plain, err := quant.Dequantized(src, dir)
	return err != nil || plain != checkpoint.Source(src)
}

// fromTorch makes a Hugging Face directory of what PyTorch has saved.
func (o *conversion) fromTorch(path, dst, dtype string) error {
	sides := o.like
	if sides == "" {
		if sides = path; torch.IsFile(path) {
			sides = filepath.Dir(path)
		}
	}
	if !machine.Exists(filepath.Join(sides, "config.json")) {
		var err error
		if sides, err = saidModel(path); err != nil {
			return err
		}
		defer os.RemoveAll(sides)
	}
	notes := io.Writer(os.Stderr)
	if o.keeps() { // its optimizer is not dropped
		notes = io.Discard
	}
	src, err := openTorch(notes, path, sides)
	if err != nil {
		return err
	}
	defer src.Close()
	named, dropped, err := trained.Named(src, path, sides)
	if err != nil {
		return err
	}
	for _, d := range dropped {
		fmt.Fprintf(os.Stderr, "note: %s: %v\n", path, d)
	}
	if dtype != "" {
		if named, err = checkpoint.Cast(named, dtype, trained.InFull(sides, dtype)...); err != nil {
			return err
		}
	}
	return trained.WriteFolder(dst, named, sides, trained.Form{DType: dtype, Shard: int64(o.shard), Journal: o.journal})
}

// foreign reports whether a path has a form that is neither a run's checkpoint nor safetensors.
func foreign(path string) bool {
	return strings.HasSuffix(path, gguf.Ext) || torch.IsFile(path) || torch.IsDir(path) ||
		torch.IsDCP(path) || torch.MegatronDir(path) != "" || torch.DeepSpeedDir(path) != ""
}

// openTorch opens what PyTorch or Megatron has saved, of the model of a directory, and says on w what is dropped.
func openTorch(w io.Writer, path, like string) (checkpoint.Source, error) {
	if dir := torch.MegatronDir(path); dir != "" {
		src, dropped, err := torch.OpenMegatron(dir, like)
		if len(dropped) > 0 {
			d := trained.Dropped{Why: "state of the optimizer and of the training", Names: dropped}
			fmt.Fprintf(w, "note: %s: %v\n", path, d)
		}
		return src, err
	}
	if dir := torch.DeepSpeedDir(path); dir != "" {
		src, st, err := torch.OpenDeepSpeed(dir)
		if err == nil && len(st.Kinds) > 0 {
			fmt.Fprintf(w, "note: %s: what the optimizer keeps is dropped\n", path)
		}
		return src, err
	}
	if torch.IsDCP(path) {
		return torch.OpenDCP(path)
	}
	return torch.Open(path)
}

// from makes what is wanted of a Hugging Face directory.
func (o *conversion) from(dir, dst string) error {
	if o.to == "gguf" {
		return gguf.Export(o.journal, dir, dst, o.dtype)
	}
	files, err := checkpoint.OpenDir(dir)
	if err != nil {
		return err
	}
	defer files.Close()
	src := checkpoint.Finite(files)
	if o.dtype != "" {
		if src, err = checkpoint.Cast(src, o.dtype, trained.InFull(dir, o.dtype)...); err != nil {
			return err
		}
	}
	if o.to == "lfactor" {
		st, err := o.states(dir, dst)
		if err != nil {
			return err
		}
		return errors.Join(trained.WriteOwn(dst, dir, src, st), st.Close())
	}
	if _, err := checkpoint.CopySideFiles(dir, dst); err != nil {
		return err
	}
	switch o.to {
	case "dcp":
		return torch.WriteDCP(o.journal, dst, src)
	case "megatron":
		st, err := o.states(dir, dst)
		if err != nil {
			return err
		}
		return errors.Join(torch.WriteMegatron(o.journal, dst, src, dir, o.divisible, o.grid, st), st.Close())
	case "megatron-ranks":
		return torch.WriteRanks(o.journal, dst, src, dir, o.divisible, o.grid)
	}
	return torch.Write(o.journal, filepath.Join(dst, torch.FileName), src)
}

// export writes a run's checkpoint as a Hugging Face directory.
func (o *conversion) export(src, dst string) error {
	t, err := trained.Open(src, "", trained.Average(o.average), trained.Bare)
	if err != nil {
		return err
	}
	defer t.Close()
	if t.Saved == nil {
		return exit.Usagef("%s is a Hugging Face directory already; `lfactor train` with "+
			"train.steps=0 makes a checkpoint of one", src)
	}
	if o.merge && t.Lora == nil {
		return exit.Usagef("--merge: %s has no adapters", src)
	}
	t.Cfg.Run.LoRA.Merge = t.Cfg.Run.LoRA.Merge || o.merge
	t.Model.Spec.MTP = t.Cfg.Model.MTPLayers
	e := trained.Exporter{Shard: int64(o.shard), Cfg: t.Cfg, Model: t.Model, Lora: t.Lora, Saved: t.Saved,
		Side: trained.SideDir(t.Cfg)}
	if err := e.Write(dst); err != nil {
		return fmt.Errorf("export to %s: %w", dst, err)
	}
	for _, note := range e.Notes() {
		fmt.Fprintf(os.Stderr, "note: %s\n", note)
	}
	return nil
}
