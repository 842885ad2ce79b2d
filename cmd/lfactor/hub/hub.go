// Package hub is the verb of that name: it parses, calls and prints.
package hub

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/hub"
)

// Command is lfactor hub: models from and to a hub.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "hub", Short: "Fetch models from a hub of Hugging Face's API, and put them there"}
	c.AddCommand(get(), put())
	return c
}

// client is one as the environment says.
func client(r hub.Repo) *hub.Client {
	c := hub.New(hf.CacheDir(os.Getenv), os.Getenv)
	if r.Site == hub.ModelScope {
		c = hub.NewModelScope(hf.CacheDir(os.Getenv), os.Getenv)
	}
	c.Say = func(format string, a ...any) { fmt.Fprintf(os.Stderr, format+"\n", a...) }
	return c
}

func get() *cobra.Command {
	c := &cobra.Command{Use: "get OWNER/NAME[@REVISION]",
		Short: "Bring a repository into Hugging Face's cache, and print its directory",
		Long: "Bring a repository into Hugging Face's cache, and print its directory. Files are held to the hub's " +
			"hashes; what was begun goes on where it ended. HF_ENDPOINT, HF_TOKEN, HF_HOME and their like are read as " +
			"by huggingface_hub. Run files name such a repository as hf://OWNER/NAME. ms://OWNER/NAME is one of ModelScope, " +
			"with MODELSCOPE_DOMAIN and MODELSCOPE_API_TOKEN.",
		Args: cobra.ExactArgs(1)}
	include := c.Flags().StringSlice("include", nil, "patterns of the files' names; without it the weights in "+
		"safetensors, or others where there are none, with configuration, tokenizer and code")
	c.RunE = func(c *cobra.Command, args []string) error {
		r, err := hub.ParseRepo(args[0])
		if err != nil {
			return err
		}
		dir, err := client(r).Get(c.Context(), r, *include)
		if err != nil {
			return err
		}
		return cli.Emit(c, map[string]string{"path": dir}, func(w io.Writer) { fmt.Fprintln(w, dir) })
	}
	return c
}

func put() *cobra.Command {
	c := &cobra.Command{Use: "put DIR OWNER/NAME[@BRANCH]",
		Short: "Put the files of a directory into a repository, as one commit; ms://OWNER/NAME is one of ModelScope",
		Args:  cobra.ExactArgs(2)}
	message := c.Flags().StringP("message", "m", "Upload of lfactor", "of the commit")
	private := c.Flags().Bool("private", false, "make the repository a private one, where it is not there yet")
	c.RunE = func(c *cobra.Command, args []string) error {
		r, err := hub.ParseRepo(args[1])
		if err != nil {
			return err
		}
		done, err := client(r).Put(c.Context(), args[0], r, *message, *private)
		if err != nil {
			return err
		}
		return cli.Emit(c, done, func(w io.Writer) {
			fmt.Fprintf(w, "%s: %d files, %d of them put, commit %s\n", r.Name, done.Files, done.Sent, done.Commit)
		})
	}
	return c
}
