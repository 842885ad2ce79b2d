package data

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/actors/stream"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
)

const serveHelp = `The training data of a run is read, tokenized, packed and shuffled as the run would, and its batches are given to whoever asks:

  GET /                              the form of the batches, as JSON
  GET /batch?token=T&rank=R&of=N     a share of the step that begins at a token, as an Arrow IPC stream

The header X-Next-Token, and next_token in the metadata of the schema, begin the next step; no token is the start. A client that goes on with its
last token goes on exactly, here or with another server of the same run file. docs/data.md has a client for PyTorch.`

func dataServe() *cobra.Command {
	c := &cobra.Command{Use: "serve RUN.yaml [KEY=VALUE…]", Short: "Give the batches of a run's data to other trainers",
		Long: serveHelp, Args: cobra.MinimumNArgs(1)}
	listen := c.Flags().String("listen", "127.0.0.1:8790", "address to listen on; whoever reaches it reads the data")
	log := c.Flags().String("quarantine", "",
		"folder that gets quarantine.jsonl, with the documents that were set aside")
	c.RunE = func(c *cobra.Command, args []string) error {
		s, err := run.OpenStream(args[0], args[1:], *log)
		if err != nil {
			return err
		}
		defer s.Close()
		l, err := cli.Listen(*listen, "--listen")
		if err != nil {
			return err
		}
		fmt.Fprintf(c.ErrOrStderr(), "serving steps of %d rows of %d tokens on http://%s\n", s.GlobalBatch,
			s.SeqLen, l.Addr())
		h := &http.Server{Handler: stream.NewServer(stream.Source{Batches: s.Batches, SeqLen: s.SeqLen,
			MicroBatch: s.MicroBatch, GlobalBatch: s.GlobalBatch}), ReadHeaderTimeout: 10 * time.Second}
		stop := context.AfterFunc(c.Context(), func() {
			_ = h.Close() // clients ask again
		})
		defer stop()
		if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
	return c
}
