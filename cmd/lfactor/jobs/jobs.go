// Package jobs has the verbs for the jobs of a cluster: they parse, call and print.
package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
)

// Commands are ps, attach, logs, stop and events.
func Commands() []*cobra.Command {
	return []*cobra.Command{ps(), attach(), logs(), stop(), events()}
}

// onCluster gives a command the flag that names a cluster; the result asks its head.
func onCluster(c *cobra.Command) func() (*control.Client, error) {
	name := c.Flags().String("cluster", "", "name of the cluster; the one that was made last by default")
	return func() (*control.Client, error) {
		cl, err := user.Open(*name)
		if err != nil {
			return nil, err
		}
		return cl.Client()
	}
}

// which is the job that the first argument names, by default the newest.
func which(args []string) string {
	if len(args) == 0 {
		return "last"
	}
	return url.PathEscape(args[0])
}

func ps() *cobra.Command {
	c := &cobra.Command{Use: "ps", Short: "List the jobs of a cluster, the newest last", Args: cobra.NoArgs}
	client := onCluster(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		cl, err := client()
		if err != nil {
			return err
		}
		var jobs []head.Job
		if err := cl.Do(c.Context(), "GET", "/v1/jobs", nil, &jobs); err != nil {
			return err
		}
		return cli.Emit(c, jobs, func(w io.Writer) {
			t := cli.TextTable("job", "state", "run", "user", "hosts", "processes", "restarts", "since", "why")
			t.SetOutputMirror(cli.Visible(w, ""))
			for _, j := range jobs {
				t.AppendRow([]any{j.ID, j.State, j.Spec.Name, j.Spec.User, strings.Join(j.Hosts, " "),
					j.Spec.Procs, j.Restarts, time.Since(since(j)).Round(time.Second), j.Why})
			}
			t.Render()
		})
	}
	return c
}

// since is when a job came into the state it is in.
func since(j head.Job) time.Time {
	switch j.State {
	case head.Queued:
		return j.Queued
	case head.Running:
		return j.Began
	}
	return j.Ended
}

func attach() *cobra.Command {
	c := &cobra.Command{Use: "attach [JOB]", Short: "Show what a job writes, from its beginning, until it ends",
		Long: "JOB is by default the newest. The command ends with the job's exit code; ending the command leaves " +
			"the job alone.", Args: cobra.MaximumNArgs(1)}
	client := onCluster(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := client()
		if err != nil {
			return err
		}
		return cli.Attach(c.Context(), cl, which(args), c.OutOrStdout(), os.Stderr, false)
	}
	return c
}

func stop() *cobra.Command {
	c := &cobra.Command{Use: "stop [JOB]", Short: "Let a job end after the step under way, with a durable save",
		Long: "JOB is one of the cluster, by default the newest, or the run directory (log.dir) of a run on this host.",
		Args: cobra.MaximumNArgs(1)}
	client := onCluster(c)
	now := c.Flags().Bool("now", false, "kill it instead: it loses what is not durable")
	c.RunE = func(c *cobra.Command, args []string) error {
		at := strings.Join(args, "") // a job's name has no slash
		if i, err := os.Stat(at); err == nil && i.IsDir() || strings.ContainsAny(at, `/\\.`) {
			return stopHere(c, args[0], *now)
		}
		cl, err := client()
		if err != nil {
			return err
		}
		path := "/v1/jobs/" + which(args) + "/stop"
		if *now {
			path += "?now=1"
		}
		var j head.Job
		if err := cl.Do(c.Context(), "POST", path, nil, &j); err != nil {
			return err
		}
		return cli.Emit(c, j, func(w io.Writer) {
			if j.State == head.Ended {
				fmt.Fprintf(w, "job %s has ended: it %s\n", j.ID, j.Why)
			} else {
				fmt.Fprintf(w, "job %s ends after the step under way; `lfactor attach %s` shows it\n", j.ID, j.ID)
			}
		})
	}
	return c
}

// stopHere ends the run of a directory on this host.
func stopHere(c *cobra.Command, dir string, now bool) error {
	pid := host.ProcessOf(dir, 0)
	if pid == 0 {
		return exit.With(fmt.Errorf("%s: no run is under way here", dir), exit.Corrupt)
	}
	p, err := os.FindProcess(pid)
	if err == nil && now {
		err = p.Kill()
	} else if err == nil {
		err = p.Signal(syscall.SIGTERM)
	}
	if err != nil {
		return fmt.Errorf("process %d, which leads the run of %s: %w", pid, dir, err)
	}
	told := struct {
		Dir     string `json:"dir"`
		Process int    `json:"process"`
	}{dir, pid}
	return cli.Emit(c, told, func(w io.Writer) {
		if now {
			fmt.Fprintf(w, "process %d of %s is killed\n", pid, dir)
			return
		}
		fmt.Fprintf(w, "%s ends after the step under way, with a save if it has a checkpoint.dir\n", dir)
	})
}

// logs prints what a job has written, each line with its host and process.
func logs() *cobra.Command {
	c := &cobra.Command{Use: "logs [JOB]", Short: "Print what a job's processes have written, by host and process",
		Args: cobra.MaximumNArgs(1)}
	client := onCluster(c)
	follow := c.Flags().BoolP("follow", "f", false, "go on until the job ends")
	proc := c.Flags().Int("proc", -1, "only this process")
	host := c.Flags().String("host", "", "only processes of this host")
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := client()
		if err != nil {
			return err
		}
		form, err := cli.Output(c)
		if err != nil {
			return err
		}
		path := "/v1/jobs/" + which(args) + "/output?follow=" + map[bool]string{true: "1", false: "0"}[*follow]
		body, err := cl.Open(c.Context(), "GET", path, nil)
		if err != nil {
			return err
		}
		defer body.Close()
		lines := []Line{}
		dec := json.NewDecoder(body)
		for {
			var o user.Output
			if err := dec.Decode(&o); err != nil || o.End != nil {
				return errors.Join(finish(c, form, lines), broken(c, err))
			}
			if *proc >= 0 && o.Proc != *proc || *host != "" && o.Host != *host {
				continue
			}
			for _, text := range strings.Split(strings.TrimSuffix(string(o.Data), "\n"), "\n") {
				l := Line{o.Host, o.Proc, o.Stream, text}
				if form == "json" {
					lines = append(lines, l)
				} else if err := cli.EmitAs(c.OutOrStdout(), form, l, l.print); err != nil {
					return err
				}
			}
		}
	}
	return c
}

// Line is a line that a process of a job has written.
type Line struct {
	Host   string `json:"host"`
	Proc   int    `json:"proc"`
	Stream string `json:"stream"`
	Text   string `json:"text"`
}

func (l Line) print(w io.Writer) {
	fmt.Fprintf(cli.Visible(w, ""), "%s %d│ %s\n", l.Host, l.Proc, l.Text)
}

// finish prints what -o json holds back until the end.
func finish(c *cobra.Command, form string, lines []Line) error {
	if form != "json" {
		return nil
	}
	return cli.EmitAs(c.OutOrStdout(), form, lines, nil)
}

// broken is the error of a stream that ended before its end was said; a user who ends the command wants none.
func broken(c *cobra.Command, err error) error {
	if err == nil || c.Context().Err() != nil {
		return nil
	}
	return fmt.Errorf("the head has ended the answer: %w", err)
}

func events() *cobra.Command {
	c := &cobra.Command{Use: "events", Short: "Print what has happened in a cluster: hosts, jobs, losses and " +
		"restarts, with their causes", Args: cobra.NoArgs}
	client := onCluster(c)
	follow := c.Flags().BoolP("follow", "f", false, "go on until the command is ended")
	after := c.Flags().Int("after", 0, "only events after this number")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cl, err := client()
		if err != nil {
			return err
		}
		form, err := cli.Output(c)
		if err != nil {
			return err
		}
		path := "/v1/events?after=" + strconv.Itoa(*after)
		if *follow {
			path += "&follow=1"
		}
		body, err := cl.Open(c.Context(), "GET", path, nil)
		if err != nil {
			return err
		}
		defer body.Close()
		all := []head.Event{}
		dec := json.NewDecoder(body)
		for {
			var e head.Event
			if err := dec.Decode(&e); errors.Is(err, io.EOF) || c.Context().Err() != nil {
				break
			} else if err != nil {
				return broken(c, err)
			}
			if form == "json" {
				all = append(all, e)
				continue
			}
			if err := cli.EmitAs(c.OutOrStdout(), form, e, func(w io.Writer) {
				fmt.Fprintf(cli.Visible(w, ""), "%5d  %s  %-8s %s\n", e.N, e.Time.Local().Format("01-02 15:04:05.000"), e.Kind, e.Text)
			}); err != nil {
				return err
			}
		}
		if form == "json" {
			return cli.EmitAs(c.OutOrStdout(), form, all, nil)
		}
		return nil
	}
	return c
}
