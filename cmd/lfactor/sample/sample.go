// Package sample is the verb of that name: it parses, calls and prints.
package sample

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
	"github.com/lfactor/lfactor/topology/machine"
)

// Command is lfactor sample: text from a trained model.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "sample MODEL", Short: "Continue or draw a prompt with a trained model", Long: "MODEL " +
		"is a checkpoint directory of a run, a Hugging Face directory or a GGUF file. Models of diffusion draw: " +
		"lfactor sample checkpoints --prompt \"a red disc\" --image-out disc.png", Args: cobra.ExactArgs(1)}
	f := c.Flags()
	prompt := f.String("prompt", "", "text to continue")
	var p sample.Params
	f.IntVar(&p.Max, "max", 64, "new tokens at most")
	f.Float64Var(&p.Temperature, "temperature", 0.8, "0 takes the likeliest token always")
	f.Float64Var(&p.TopP, "top-p", 0.95, "least probability of the set of tokens that are drawn from")
	f.IntVar(&p.TopK, "top-k", 0, "draw from so many of the likeliest tokens; 0 from all")
	f.Uint64Var(&p.Seed, "seed", 0, "seed of the draws")
	greedy := f.Bool("greedy", false, "the same as --temperature 0")
	tokenizer := f.String("tokenizer", "", "directory with tokenizer.json, and with the chat template and "+
		"preprocessor_config.json for --image, if MODEL has none")
	images := f.StringArray("image", nil, "image to ask the prompt about, for models that see, or that clips "+
		"begin with or that is to be changed, for models that draw; again for further images to be changed")
	chat := f.String("chat", "", "say TEXT to the model in its own chat template; on a terminal the conversation "+
		"goes on with each line typed. \"-\" takes every turn from standard input, one a line")
	average := f.Bool("ema", false, "take the average of the weights that optimizer.ema keeps")
	var d drawing
	d.add(c)
	cli.OnProcessor(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if p.Max < 0 || p.Temperature < 0 || p.TopP < 0 || p.TopP > 1 || p.TopK < 0 {
			return exit.Usagef("sample: --max, --temperature and --top-k are not negative, --top-p lies " +
				"between 0 and 1")
		}
		if *greedy {
			p.Temperature = 0
		}
		if d.out == "" {
			if err := unused(c); err != nil {
				return err
			}
		}
		switch {
		case d.out != "":
			if *chat != "" {
				return exit.Usagef("sample: --image-out excludes --chat")
			}
			for _, image := range *images {
				b, err := os.ReadFile(image)
				if err != nil {
					return exit.With(err, exit.Usage)
				}
				d.Images = append(d.Images, b)
			}
			d.Seed = p.Seed
			if err := d.check(); err != nil {
				return err
			}
			return drawCommand(c, args[0], *prompt, &d, trained.Average(*average))
		case len(*images) > 1:
			return exit.Usagef("sample: a question is about one --image")
		case *images != nil && *chat != "" || *prompt != "" && *chat != "":
			return exit.Usagef("sample: --chat excludes --prompt and --image")
		case *chat != "":
			return chatCommand(c, args[0], *tokenizer, *chat, p, trained.Average(*average))
		case *images != nil:
			return askCommand(c, args[0], *tokenizer, (*images)[0], *prompt, p, trained.Average(*average))
		}
		return sampleCommand(c, args[0], *tokenizer, *prompt, p, trained.Average(*average))
	}
	return c
}

// sampled is a continuation or an answer.
type sampled struct {
	Prompt string `json:"prompt"`
	Text   string `json:"text"`
	*trained.Rate
}

// live is where text goes while it is drawn: to the terminal, or nowhere if the result is to be JSON.
func live(c *cobra.Command) (io.Writer, error) {
	form, err := cli.Output(c)
	if form != "text" {
		return io.Discard, err
	}
	return c.OutOrStdout(), err
}

func sampleCommand(c *cobra.Command, path, tokenizer, prompt string, p sample.Params, how trained.Option) error {
	out, err := live(c)
	if err != nil {
		return err
	}
	m, err := trained.Open(path, tokenizer, how)
	if err != nil {
		return err
	}
	defer m.Close()
	usual(c, m, &p)
	fmt.Fprint(out, prompt)
	var text strings.Builder
	rate, err := m.Generate(prompt, p, io.MultiWriter(out, &text))
	if err != nil {
		return err
	}
	return cli.Emit(c, sampled{prompt, text.String(), &rate}, func(w io.Writer) { fmt.Fprintln(w) })
}

// usual draws as the model's folder says where no flag does, and tells what of that is not read.
func usual(c *cobra.Command, m *trained.Trained, p *sample.Params) {
	for _, n := range m.Notes {
		fmt.Fprintln(c.ErrOrStderr(), "note:", n)
	}
	m.Usual(p, func(key string) bool {
		return c.Flags().Changed(strings.ReplaceAll(key, "_", "-")) || key == "temperature" && c.Flags().Changed("greedy")
	})
}

// askCommand prints a model's answer to a question about an image.
func askCommand(c *cobra.Command, path, tokenizer, image, prompt string, p sample.Params, how trained.Option) error {
	if prompt == "" {
		return exit.Usagef("sample: --image wants a question in --prompt")
	}
	b, err := os.ReadFile(image)
	if err != nil {
		return err
	}
	q, done, err := trained.OpenQuiz(tokenizer, path, how)
	if err != nil {
		return err
	}
	defer done()
	usual(c, q.Model(), &p)
	text, err := q.Answer(prompt, b, p)
	if err != nil {
		return fmt.Errorf("%s: %w", image, err)
	}
	return cli.Emit(c, sampled{Prompt: prompt, Text: text}, func(w io.Writer) { fmt.Fprintln(w, text) })
}

// chatCommand holds a conversation: one turn, or more from a terminal or, with "-", from standard input.
func chatCommand(c *cobra.Command, path, tokenizer, first string, p sample.Params, how trained.Option) error {
	out, err := live(c)
	if err != nil {
		return err
	}
	m, err := trained.Open(path, tokenizer, how)
	if err != nil {
		return err
	}
	defer m.Close()
	usual(c, m, &p)
	chat, err := m.NewChat()
	if err != nil {
		return err
	}
	defer chat.Close()
	var all []sampled
	say := func(text string) error {
		answer, rate, err := chat.Say(text, p, out)
		fmt.Fprintln(out)
		all = append(all, sampled{text, answer, &rate})
		return err
	}
	if first != "-" {
		if err := say(first); err != nil {
			return err
		}
	}
	if first == "-" || terminal() {
		mark := func() {
			if terminal() {
				fmt.Fprint(os.Stderr, "> ")
			}
		}
		mark()
		for lines := bufio.NewScanner(c.InOrStdin()); c.Context().Err() == nil && lines.Scan(); mark() {
			if text := strings.TrimSpace(lines.Text()); text != "" {
				if err := say(text); err != nil {
					return err
				}
			}
		}
	}
	return cli.Emit(c, all, func(io.Writer) {})
}

// terminal reports whether somebody can type.
func terminal() bool {
	return machine.Terminal(os.Stdin)
}
