package serve

import (
	"fmt"
	"io"
	"net"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/serve"
	"github.com/lfactor/lfactor/actors/serve/policy"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/policies"
	"github.com/lfactor/lfactor/stages/trained"
)

// policyFlags are those that policies alone have, and textFlags those of models that speak.
var (
	policyFlags = []string{"prompt", "robot", "replicas", "batch", "clients", "message-bytes", "slow", "denoise-steps",
		"join", "encoders"}
	textFlags = []string{"pages", "context", "step-tokens", "running", "precision", "draft", "ahead", "train", "drain", "pairs", "beside", "batches",
		"reasoning-parser", "keys", "queue-tokens", "follow"}
)

// bindPolicy declares the flags of policies.
func bindPolicy(c *cobra.Command, o *policy.Options) {
	f := c.Flags()
	f.StringVar(&o.Prompt, "prompt", "", "policies: task of observations that say none")
	f.StringVar(&o.Robot, "robot", "",
		"policies of several robots: data set of the one that asks, by the end of its path; the first by default")
	f.StringVar(&o.Encoders, "encoders", "", "policies that see clips: folder with vae, and with text_encoder and "+
		"image_encoder where the policy reads by them, if not those that it names")
	f.IntVar(&o.Replicas, "replicas", 1, "policies: actors that answer, each with weights of its own")
	f.IntVar(&o.Batch, "batch", 8, "policies: observations that a replica answers at once")
	f.IntVar(&o.Clients, "clients", 64, "policies: connections at once; more are refused with status 503")
	f.Int64Var(&o.Message, "message-bytes", 16<<20, "policies: bytes of a message; a longer one ends its connection")
	f.DurationVar(&o.Slow, "slow", policy.Options{}.Usual().Slow,
		"policies: time that a message may take to come, and an answer to be read")
	f.IntVar(&o.Steps, "denoise-steps", 0,
		"policies: steps from noise to actions (default: the policy's own, 10 of Euler)")
	f.IntVar(&o.Horizon, "join", policies.JoinHorizon,
		"policies: actions over which a chunk is joined to the one under way, if a robot asks for it")
}

// only refuses flags that are set and that nothing would read.
func only(c *cobra.Command, what string, unread []string) error {
	for _, name := range unread {
		if c.Flags().Changed(name) {
			return exit.Usagef("serve: the model is %s, and --%s has no effect on it", what, name)
		}
	}
	return nil
}

// runPolicy serves a policy until a signal comes, and says how long its answers took.
func runPolicy(c *cobra.Command, m *trained.Trained, l net.Listener, o policy.Options) error {
	o.Notes = c.ErrOrStderr()
	s, err := policy.New(m, o)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := announce(c, serving{o.Name, fmt.Sprintf("%s://%s", scheme(l, "ws"), l.Addr())}); err != nil {
		return err
	}
	if err := serve.Listen(c.Context(), l, serve.Own(o.Token, s), serve.Drain); err != nil {
		return err
	}
	s.Close()
	done := s.Summary()
	return cli.Emit(c, done, func(w io.Writer) { fmt.Fprintln(w, done) })
}
