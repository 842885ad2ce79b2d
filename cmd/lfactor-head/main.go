// Command lfactor-head serves as the head of a cluster: it has the store, etcd, which no other command links.
// `lfactor cluster up` and agents start it by way of `lfactor cluster head`, which finds it; people do not start it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/store/etcd"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/machine"
)

// asked is what a head is started with.
type asked struct {
	dir, listen, restore string
	above                int64
	program, version     string // lfactor, which agents run, and its version
}

func command() *cobra.Command {
	var a asked
	c := &cobra.Command{Use: "lfactor-head", Short: "Serve as the head of a cluster", Args: cobra.NoArgs,
		SilenceErrors: true, SilenceUsage: true}
	f := c.Flags()
	f.StringVar(&a.dir, "dir", "", "the head's directory")
	f.StringVar(&a.listen, "listen", "127.0.0.1:0", "address to listen at")
	f.StringVar(&a.restore, "restore", "", "backup whose state the head in --dir starts with the next time")
	f.Int64Var(&a.above, "above", 0, "with --restore: the newest term that any head has begun")
	f.StringVar(&a.program, "program", "", "the lfactor that agents run")
	f.StringVar(&a.version, "program-version", "", "its version")
	c.RunE = func(c *cobra.Command, _ []string) error { return a.serve(c.Context()) }
	return c
}

func (a *asked) serve(ctx context.Context) error {
	if a.dir == "" || a.program == "" {
		return exit.Usagef("lfactor-head is started by lfactor: see `lfactor cluster up --help`")
	}
	if mine := cli.Version(); !cli.SameVersion(mine, a.version) {
		return exit.Usagef("this lfactor-head is of version %s, and lfactor, %s, of %s: install both again, "+
			"from one version", mine, a.program, a.version)
	}
	if a.restore != "" {
		return a.restored()
	}
	hash, err := machine.HashFile(a.program)
	if err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" { // connections of a thousand agents are 200 MB: little more than that is enough
		debug.SetGCPercent(40)
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT) // it outlives the terminal it was started from
	return head.Run(ctx, head.Options{Command: []string{a.program}, Dir: a.dir, Listen: a.listen, Binary: hash,
		Version: cli.Version(), Log: os.Stderr, Open: etcd.Open})
}

// restored gives the state of a backup to a head that does not run.
func (a *asked) restored() error {
	seats, err := head.LoadSeats(a.dir)
	if err != nil {
		return err
	}
	if err := etcd.Restore(a.restore, seats.Store(a.dir), a.above); err != nil {
		return exit.With(err, exit.Corrupt)
	}
	return nil
}

func main() {
	ctx, stop := cli.Interruptible()
	defer stop()
	err := cli.Execute(ctx, command())
	if err == nil {
		return
	}
	if err.Error() != "" {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
	stop()
	os.Exit(cli.ExitCode(err))
}
