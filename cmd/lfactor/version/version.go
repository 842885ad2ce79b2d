// Package version is the verb of that name: it parses, calls and prints.
package version

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
)

// Command is lfactor version.
func Command() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v := map[string]string{"version": cli.Version(), "go": runtime.Version(), "os": runtime.GOOS,
				"arch": runtime.GOARCH}
			return cli.Emit(c, v, func(w io.Writer) {
				fmt.Fprintln(w, "lfactor", cli.Version(), runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
			})
		}}
}
