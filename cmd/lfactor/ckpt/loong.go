package ckpt

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
)

// loongRule is what becomes of an argument of LoongForge's tools/convert_checkpoint.
type loongRule struct {
	flag   string   // of ckpt convert, which takes its value
	fine   []string // values that change nothing; "*" is any
	reason string   // why it changes nothing, or why another value is refused
	bare   bool     // it has no value
	late   bool     // it is taken with others, when all are known
}

// loongRules are all arguments of LoongForge's converter, by their names with hyphens.
var loongRules = map[string]loongRule{
	"load-platform":                        {late: true},
	"save-platform":                        {late: true},
	"load-ckpt-path":                       {late: true},
	"save-ckpt-path":                       {late: true},
	"checkpoint-format":                    {late: true},
	"safetensors":                          {late: true, bare: true},
	"expert-tensor-parallel-size":          {late: true},
	"pad-vocab-size-to":                    {late: true},
	"add-embedding-padding":                {late: true},
	"hf-official-config-file":              {late: true},
	"tensor-model-parallel-size":           {flag: "tp"},
	"pipeline-model-parallel-size":         {flag: "pp"},
	"num-virtual-stages-per-pipeline-rank": {flag: "vp"},
	"expert-parallel-size":                 {flag: "ep"},
	"make-vocab-size-divisible-by":         {flag: "vocab-divisible"},
	"torch-dtype":                          {flag: "dtype"},
	"hf-dequantize-dtype":                  {flag: "dtype"},
	"no-load-optim":                        {flag: "no-optimizer", bare: true},
	"no-save-optim":                        {flag: "no-optimizer", bare: true},
	"convert-to-fp8":                       {flag: "quantize=fp8", bare: true},

	"quant-method": {fine: []string{"pt"},
		reason: "scales are float32, of the greatest magnitude of a block, as pt makes them"},
	"amax-epsilon": {fine: []string{"0", "0.0"},
		reason: "a block of zeros has scale 1 here, and no other number is added"},
	"fp8-quant-transfer-type": {fine: []string{"float32"},
		reason: "blocks are rounded from float32"},
	"force-pow-2-scales": {bare: true,
		reason: "scales that are powers of two are not written"},
	"fp8-force-no-requant": {bare: true,
		reason: "blocks of a file in FP8 are numbers in between, and are rounded anew"},
	"pretrain-as-fp8": {bare: true,
		reason: "weights of a training are kept in its precision"},
	"megatron-path": {fine: []string{"*"}, reason: "no Megatron is needed"},
	"config-file": {fine: []string{"*"},
		reason: "the model is that of config.json of the Hugging Face side"},
	"convert-file": {fine: []string{"*"},
		reason: "names are those of the model's family; one that has none ends the conversion"},
	"adapter-convert-file": {fine: []string{"*"},
		reason: "projectors go with the whole model"},
	"vision-patch-convert-file": {fine: []string{"*"},
		reason: "what sees goes with the whole model"},
	"hf-dequantize-int4": {bare: true, fine: []string{""},
		reason: "numbers of few bits are always unpacked"},
	"hf-dequantize-mxfp4": {bare: true, fine: []string{""},
		reason: "numbers of few bits are always unpacked"},
	"distributed-convert": {bare: true, fine: []string{""},
		reason: "one process writes several parts at a time"},
	"max-workers": {fine: []string{"*"},
		reason: "one process writes several parts at a time"},
	"resume-convert": {bare: true, fine: []string{""},
		reason: "a conversion that was interrupted always goes on"},
	"cache-path": {fine: []string{"*"},
		reason: "nothing but the destination and its journal is written"},
	"hf-checkpoint-device": {fine: []string{"cpu"},
		reason: "weights are read from files, a few rows at a time"},
	"data-parallel-size": {fine: []string{"*"},
		reason: "weights are the same on all replicas"},
	"vocab-size":  {fine: []string{"*"}, reason: "config.json says it"},
	"num-experts": {fine: []string{"*"}, reason: "config.json says it"},
	"transformer-impl": {fine: []string{"*"},
		reason: "names of both are read; files of ranks are written with Transformer Engine's"},
	"no-te": {bare: true, fine: []string{""},
		reason: "names of both are read; files of ranks are written with Transformer Engine's"},
	"vit-in-first-virtual-stage-only": {bare: true, fine: []string{""},
		reason: "that is where it is written"},
	"moe-grouped-gemm": {bare: true,
		reason: "files of ranks are written expert by expert; both are read"},
	"mtp-num-layers": {fine: []string{"0"},
		reason: "layers for further tokens have no names here"},
	"encoder-tensor-model-parallel-size": {fine: []string{"1"},
		reason: "what sees is whole on every rank"},
	"enable-full-hetero-dp": {bare: true,
		reason: "what sees is written to the first stage alone"},
	"load-lora-ckpt-path": {reason: "adapters are read in PEFT's form: --merge"},
	"lora-alpha":          {reason: "adapters are read in PEFT's form, which says it"},
	"lora-dim":            {reason: "adapters are read in PEFT's form, which says it"},
	"vpp-scheduler":       {reason: "virtual stages are written in Megatron's order alone"},
	"custom-pipeline-layers": {reason: "stages are written with as many layers each; any " +
		"are read"},
	"pipeline-model-parallel-layout": {reason: "stages are written with as many layers each; any " +
		"are read"},
	"decoder-first-pipeline-num-layers": {reason: "stages are written with as many layers each; any " +
		"are read"},
	"decoder-last-pipeline-num-layers": {reason: "stages are written with as many layers each; any " +
		"are read"},
	"num-layers-per-virtual-pipeline-stage": {reason: "say num-virtual-stages-per-pipeline-rank"},
	"hf-quant-config-file":                  {reason: "config.json says how weights are kept in few bits"},
	"hf-pack-quantized-from-config": {reason: "weights are rounded to INT4 by ckpt convert " +
		"--quantize int4"},
	"hf-pack-quantized-target-regex": {reason: "linear layers are rounded, as ckpt convert " +
		"--quantize says"},
	"layer-for-test":            {reason: "parts of a model are not written"},
	"num-experts-for-test":      {reason: "parts of a model are not written"},
	"sub-num-layers-for-save":   {reason: "parts of a model are not written"},
	"save-sub-checkpoint-by-pp": {bare: true, reason: "parts of a model are not written"},
	"sub-file-tag":              {reason: "parts of a model are not written"},
}

// loongCommand takes the arguments of LoongForge's tools/convert_checkpoint.
func loongCommand() *cobra.Command {
	c := &cobra.Command{Use: "loong [--like HF-DIR] ARGUMENTS", DisableFlagParsing: true,
		Short: "Convert by the arguments of LoongForge's converter: each is taken over, changes " +
			"nothing, or is refused with a reason"}
	c.RunE = func(c *cobra.Command, args []string) error {
		form, args, err := cli.TakeForm(args)
		if err != nil {
			return err
		}
		if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
			return c.Help()
		}
		mine, notes, err := loongArgs(args)
		if err != nil {
			return err
		}
		for _, n := range notes {
			fmt.Fprintln(c.ErrOrStderr(), "note:", n)
		}
		fmt.Fprintln(c.ErrOrStderr(), "lfactor ckpt convert", strings.Join(mine, " "))
		convert := ckptConvertCommand()
		convert.Flags().StringP("output", "o", form, "")
		convert.SetContext(c.Context())
		convert.SetErr(c.ErrOrStderr())
		convert.SetOut(c.OutOrStdout())
		if err := convert.ParseFlags(mine); err != nil {
			return exit.With(err, exit.Usage)
		}
		return convert.RunE(convert, convert.Flags().Args())
	}
	return c
}

// loongArgs are the arguments of ckpt convert for those of LoongForge's converter, and what was passed over.
func loongArgs(args []string) (out, notes []string, err error) {
	said, order, err := loongSaid(args)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range order {
		r, v := loongRules[name], said[name]
		switch {
		case r.late || name == "like":
		case r.flag == "no-optimizer" && (said["save-platform"] != "mcore" ||
			said["checkpoint-format"] != "torch_dist"):
			notes = append(notes, fmt.Sprintf("--%s changes nothing: weights alone are written", name))
		case slices.Contains([]string{"tp", "pp", "vp", "ep", "vocab-divisible"}, r.flag) &&
			said["save-platform"] != "mcore":
			notes = append(notes, fmt.Sprintf("--%s changes nothing: files say how they are cut", name))
		case r.flag != "":
			flag, fixed, has := strings.Cut(r.flag, "=")
			if has {
				v = fixed
			}
			if flag == "dtype" {
				v = map[string]string{"float32": "f32", "float16": "f16",
					"bfloat16": "bf16"}[strings.TrimPrefix(v, "torch.")]
			}
			if r.bare && !has {
				out = append(out, "--"+flag)
				continue
			}
			out = append(out, "--"+flag, v)
		case slices.Contains(r.fine, "*") || slices.Contains(r.fine, v):
			notes = append(notes, fmt.Sprintf("--%s changes nothing: %s", name, r.reason))
		default:
			return nil, nil, exit.Usagef("--%s %s: %s", name, v, r.reason)
		}
	}
	late, err := loongLate(said)
	return append(late, out...), notes, err
}

// loongSaid reads arguments, whose names may have underscores or hyphens.
func loongSaid(args []string) (said map[string]string, order []string, err error) {
	said = map[string]string{}
	for i := 0; i < len(args); i++ {
		name, v, inline := strings.Cut(strings.TrimPrefix(args[i], "--"), "=")
		name = strings.ReplaceAll(name, "_", "-")
		r, ok := loongRules[name]
		if !strings.HasPrefix(args[i], "--") || !ok && name != "like" {
			return nil, nil, exit.Usagef("%s is no argument of LoongForge's converter; those are %s", args[i],
				strings.Join(slices.Sorted(maps.Keys(loongRules)), ", "))
		}
		if r.bare && inline && v != "true" && v != "True" {
			continue // it is off
		} else if r.bare {
			v = ""
		} else if !inline {
			if i++; i == len(args) {
				return nil, nil, exit.Usagef("--%s wants a value", name)
			}
			v = args[i]
		}
		if _, twice := said[name]; !twice {
			order = append(order, name)
		}
		said[name] = v
	}
	return said, order, nil
}

// loongLate are the arguments that go together.
func loongLate(said map[string]string) (out []string, err error) {
	from, to := said["load-platform"], said["save-platform"]
	for _, p := range []string{from, to} {
		if p != "huggingface" && p != "mcore" {
			return nil, exit.Usagef("--load_platform %q and --save_platform %q: want huggingface or mcore", from, to)
		}
	}
	if said["load-ckpt-path"] == "" || said["save-ckpt-path"] == "" {
		return nil, exit.Usagef("--load_ckpt_path and --save_ckpt_path are wanted")
	}
	out = []string{said["load-ckpt-path"], said["save-ckpt-path"]}
	like := said["like"]
	if like == "" && said["hf-official-config-file"] != "" {
		like = filepath.Dir(said["hf-official-config-file"])
	}
	if like != "" {
		out = append(out, "--like", like)
	}
	if to == "huggingface" {
		if _, safe := said["safetensors"]; !safe {
			return append(out, "--to", "torch"), nil
		}
		return append(out, "--to", "hf"), nil
	}
	switch f := said["checkpoint-format"]; f {
	case "", "torch":
		out = append(out, "--to", "megatron-ranks")
	case "torch_dist":
		out = append(out, "--to", "megatron")
	default:
		return nil, exit.Usagef("--checkpoint-format %s: torch and torch_dist are written", f)
	}
	tp := said["tensor-model-parallel-size"]
	if etp, ok := said["expert-tensor-parallel-size"]; ok && etp != tp && (etp != "1" || tp != "") {
		return nil, exit.Usagef("--expert_tensor_parallel_size %s: experts are written cut by as many "+
			"ranks as the rest, %s", etp, tp)
	}
	if rows := said["pad-vocab-size-to"]; rows != "" {
		n, err := strconv.Atoi(rows)
		ranks, err2 := strconv.Atoi(max(tp, "1"))
		if err != nil || err2 != nil || n < 1 || ranks < 1 || n%ranks != 0 {
			return nil, exit.Usagef("--pad_vocab_size_to %s: want a multiple of the ranks of tensor "+
				"parallelism", rows)
		}
		out = append(out, "--vocab-divisible", fmt.Sprint(n/ranks))
	} else if v := said["add-embedding-padding"]; v == "False" || v == "false" {
		out = append(out, "--vocab-divisible", "1")
	}
	return out, nil
}
