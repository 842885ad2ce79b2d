package eval

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/trained"
)

// recallFlags are those of the search of texts by embeddings.
var recallFlags = []string{"embeddings", "pairs"}

// embeddings ranks held-out texts for their queries; asked is whether a flag asks for it.
func embeddings(c *cobra.Command, file string, mine, rest []string, form string) (asked bool, err error) {
	of := map[string]string{}
	for _, flag := range recallFlags {
		if v, ok := valueOf(mine, flag); ok {
			of[flag], asked = v, true
		}
	}
	if !asked {
		return false, nil
	}
	for _, flag := range recallFlags {
		if of[flag] == "" {
			return true, exit.Usagef("eval: a search by embeddings wants --embeddings PATH and --pairs FILE; --%s is not there",
				flag)
		}
	}
	if file != "" || len(rest) > 0 {
		return true, exit.Usagef("eval: a search by embeddings reads no run: leave %s out",
			strings.Join(append([]string{file}, rest...), " "))
	}
	m, err := trained.Open(of["embeddings"], "")
	if err != nil {
		return true, err
	}
	defer m.Close()
	shown := cli.NewProgress(c.ErrOrStderr())
	r, err := m.MeasureRecall(c.Context(), of["pairs"], func(done, all int) {
		shown.Show(int64(done), int64(all), 0, func(time.Duration) string { return "queries embedded" })
	})
	if err != nil {
		return true, err
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(c.ErrOrStderr(), "left out: %s\n", s)
	}
	return true, cli.EmitAs(cli.Out, form, r, func(w io.Writer) {
		fmt.Fprintf(w, "%d queries, %d texts\n", r.Queries, r.Texts)
		for _, n := range trained.RecallAt {
			fmt.Fprintf(w, "  recall@%-3d %.3f\n", n, r.At[n])
		}
		fmt.Fprintf(w, "  mean of 1/rank %.3f\n", r.Mean)
	})
}
