package data

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/setup"
)

const tokenizerHelp = `Byte-level BPE, cut into pieces as Llama 3 does: it has an id for every byte, so that any text can be written. Of texts larger than
--sample documents are taken that are spread over all of them; the same texts give the same tokenizer. The folder is what data.tokenizer and
transformers' AutoTokenizer take. With --chat it has ChatML's special tokens and template, for conversations.`

// dataTokenizer makes a tokenizer of one's own texts.
func dataTokenizer() *cobra.Command {
	c := &cobra.Command{Use: "tokenizer PATH… --to FOLDER", Short: "Make a tokenizer of texts", Long: tokenizerHelp,
		Example: "  lfactor data tokenizer texts --to tokenizer --vocab 8192", Args: cobra.MinimumNArgs(1)}
	o, j, sample := openFlags(c), &setup.TokenizerJob{}, ""
	f := c.Flags()
	f.StringVar(&j.Out, "to", "", "folder that gets the files; one without a tokenizer")
	f.IntVar(&j.Vocab, "vocab", 32768, "ids in all: 256 bytes, merges and special tokens; fewer where the texts have no more")
	f.StringSliceVar(&j.Special, "special", nil, "further special tokens, which take ids of their own")
	f.BoolVar(&j.Chat, "chat", false, "add <|im_start|>, <|im_end|> and the template of ChatML")
	f.StringVar(&sample, "sample", "64MiB", "how much text is looked at")
	c.RunE = func(c *cobra.Command, args []string) error {
		if j.Out == "" {
			return exit.Usagef("--to: name a folder")
		}
		size, err := configs.ParseBytes(sample)
		if err != nil || size < 1 {
			return exit.Usagef("--sample %s: want a size, as in 64MiB", sample)
		}
		j.Sample = int64(size)
		var sources []dataset.Source
		for _, path := range args {
			s, err := dataset.Open(path, *o)
			if err != nil {
				return err
			}
			defer s.Close()
			sources = append(sources, s)
		}
		p := newProgress(c.ErrOrStderr())
		j.Progress = func(done, all int64) { p.show(min(done, all), all, 0, "bytes of text", nil) }
		r, err := j.Train(c.Context(), sources)
		if err != nil {
			return err
		}
		return cli.Emit(c, r, func(w io.Writer) {
			fmt.Fprintf(w, "%s: %d ids, of %d of %d documents with %d bytes; a token is %.2f bytes of them\n", r.Folder,
				r.Vocab, r.Documents, r.Of, r.Bytes, r.PerToken)
			if r.Vocab < j.Vocab {
				fmt.Fprintf(w, "the texts have no more pairs that occur twice: %d ids in place of %d\n", r.Vocab, j.Vocab)
			}
			if r.Bad > 0 {
				fmt.Fprintf(w, "%d documents could not be read: lfactor data lint names them\n", r.Bad)
			}
		})
	}
	return c
}
