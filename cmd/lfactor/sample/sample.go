// Package sample is the verb of that name: it parses, calls and prints.
package sample

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/exit"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
)

// Command is lfactor sample: text from a trained model.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "sample MODEL", Short: "Continue a prompt with a trained model",
		Long: "MODEL is a checkpoint directory of a run, or a Hugging Face directory.", Args: cobra.ExactArgs(1)}
	f := c.Flags()
	prompt := f.String("prompt", "", "text to continue")
	var p sample.Params
	f.IntVar(&p.Max, "max", 64, "new tokens at most")
	f.Float64Var(&p.Temperature, "temperature", 0.8, "0 takes the likeliest token always")
	f.Float64Var(&p.TopP, "top-p", 0.95, "least probability of the set of tokens that are drawn from")
	f.IntVar(&p.TopK, "top-k", 0, "draw from so many of the likeliest tokens; 0 from all")
	f.Uint64Var(&p.Seed, "seed", 0, "seed of the draws")
	greedy := f.Bool("greedy", false, "the same as --temperature 0")
	tokenizer := f.String("tokenizer", "", "directory with tokenizer.json, and with the chat template and preprocessor_config.json for --image, if MODEL has none")
	picture := f.String("image", "", "picture to ask the prompt about, for models that see")
	c.RunE = func(c *cobra.Command, args []string) error {
		if p.Max < 0 || p.Temperature < 0 || p.TopP < 0 || p.TopP > 1 || p.TopK < 0 {
			return exit.Usagef("sample: --max, --temperature and --top-k are not negative, --top-p lies between 0 and 1")
		}
		if *greedy {
			p.Temperature = 0
		}
		if *picture != "" {
			return askCommand(args[0], *tokenizer, *picture, *prompt, p)
		}
		return sampleCommand(args[0], *tokenizer, *prompt, p)
	}
	return c
}

func sampleCommand(path, tokenizer, prompt string, p sample.Params) error {
	m, err := trained.Open(path, tokenizer)
	if err != nil {
		return err
	}
	defer m.Close()
	fmt.Print(prompt)
	if err := m.Generate(prompt, p, os.Stdout); err != nil {
		return err
	}
	fmt.Println()
	return nil
}

// askCommand prints a model's answer to a question about a picture.
func askCommand(path, tokenizer, picture, prompt string, p sample.Params) error {
	if prompt == "" {
		return exit.Usagef("sample: --image wants a question in --prompt")
	}
	b, err := os.ReadFile(picture)
	if err != nil {
		return err
	}
	q, done, err := trained.OpenQuiz(tokenizer, path)
	if err != nil {
		return err
	}
	defer done()
	text, err := q.Answer(prompt, b, p)
	if err != nil {
		return fmt.Errorf("%s: %w", picture, err)
	}
	fmt.Println(text)
	return nil
}
