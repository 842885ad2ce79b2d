package ckpt

import (
	_ "embed"
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

//go:embed loong.txt
var loongText string

// loongRules are all arguments of LoongForge's converter, by their names with hyphens.
var loongRules = func() map[string]loongRule {
	out, r := map[string]loongRule{}, loongRule{}
	for line := range strings.Lines(loongText) {
		if line[0] == '\t' {
			for _, name := range strings.Fields(line) {
				out[name] = r
			}
			continue
		}
		rest, bare := strings.CutPrefix(strings.TrimSpace(line), "bare ")
		verb, rest, _ := strings.Cut(rest, " ")
		switch r = (loongRule{bare: bare, late: verb == "late", reason: rest}); verb {
		case "flag":
			r.flag, r.reason = rest, ""
		case "fine":
			values, why, _ := strings.Cut(rest, " ")
			r.fine, r.reason = strings.Split(strings.Trim(values, `"`), ","), why
		}
	}
	return out
}()

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
