// Package serve is the verb of that name: it parses, calls and prints.
package serve

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/serve"
	"github.com/lfactor/lfactor/actors/serve/policy"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/policies"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
	"github.com/lfactor/lfactor/topology/machine"
)

// tokenVariable is the environment's name of the token that clients show.
const tokenVariable = "LFACTOR_SERVE_TOKEN"

// ownDraft is the value of --draft that takes the model's own layer, and ngramDraft the one that takes what was said before.
const (
	ownDraft   = "mtp"
	ngramDraft = "ngram"
)

// Command is lfactor serve: a trained model for many clients.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "serve MODEL",
		Short: "Answer clients with a trained model: texts in the form of OpenAI's API, robots in openpi's",
		Long: "MODEL is a checkpoint directory of a run, or a Hugging Face directory. Clients of OpenAI's API ask " +
			"http://HOST:PORT/v1 for completions and chats. If MODEL is a policy, openpi's clients ask " +
			"ws://HOST:PORT for actions (docs/policies.md). /metrics is for Prometheus, and / is a page to talk to the model. " + tokenVariable +
			" in the environment is a token that clients are to show as their API key.",
		Args: cobra.ExactArgs(1)}
	f := c.Flags()
	host := f.String("host", "127.0.0.1", "address to listen at; one that other machines reach wants "+tokenVariable)
	port := f.Int("port", 8000, "port to listen at; 0 takes a free one")
	name := f.String("name", "", "name of the model, as clients ask for it; the folder's by default")
	precision := f.String("precision", "fp32", "of weights and of keys and values: fp32 or bf16")
	tokenizer := f.String("tokenizer", "", "directory with tokenizer.json, if MODEL has none")
	var o serve.Options
	draft := bindEngine(c, &o)
	var teach training
	bindTrain(c, &teach)
	var robots policy.Options
	bindPolicy(c, &robots)
	beside := bindPage(c, &o)
	cert := f.String("tls-cert", "", "PEM file of the server's certificate, for TLS")
	key := f.String("tls-key", "", "PEM file of the certificate's key")
	follow := f.Bool("follow", false, "answers begin with newer checkpoints of the run as they are saved; those under way end with the weights that they began with")
	cli.OnProcessor(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		var ok bool
		if o.DType, ok = fit.Precisions[*precision]; !ok || *precision == "fp16" {
			return exit.Usagef("serve: --precision is fp32 or bf16")
		}
		if o.Engine.Pages < 1 || o.Engine.Rows < 1 || o.Engine.Running < 1 || o.Queue < 1 || o.Engine.Context < 0 ||
			o.Deadline <= 0 || o.Drain <= 0 || o.Tokens < 1 || *port < 0 || *port > 65535 {
			return exit.Usagef("serve: --pages, --step-tokens, --running, --queue, --queue-tokens, --deadline and --drain are above 0, --context is " +
				"not negative, and --port lies between 0 and 65535")
		}
		o.Token = os.Getenv(tokenVariable)
		if ip := net.ParseIP(*host); o.Token == "" && o.Keys == nil && *host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return exit.Usagef("serve: other machines reach %s: set %s to a token that clients show as their API key, or name a file of --keys",
				*host, tokenVariable)
		}
		if known := append(serve.Thinkings(), "", "auto"); !slices.Contains(known, o.Reasoning) {
			return exit.Usagef("serve: --reasoning-parser is auto or one of %s", strings.Join(serve.Thinkings(), ", "))
		}
		if o.Engine.Ahead < 1 || *draft == "" && f.Changed("ahead") {
			return exit.Usagef("serve: --ahead is above 0, and is read with --draft")
		}
		if err := errors.Join(teach.options(c, &o, *draft), readPage(&o, *beside)); err != nil {
			return err
		}
		if o.Name = *name; o.Name == "" {
			o.Name = filepath.Base(filepath.Clean(args[0]))
		}
		if err := robots.Check(); err != nil {
			return exit.Usagef("serve: %v", err)
		}
		robots.Name, robots.Token, robots.Queue = o.Name, o.Token, o.Queue
		if f.Changed("deadline") {
			robots.Deadline = o.Deadline
		}
		l, err := listen(net.JoinHostPort(*host, strconv.Itoa(*port)), *cert, *key)
		if err != nil {
			return err
		}
		defer l.Close() //nolint:errcheck // the server closes it too
		return run(c, source{args[0], *tokenizer, *draft, *follow}, l, o, robots)
	}
	return c
}

// bindEngine declares the flags of models that speak, and gives the draft model's.
func bindEngine(c *cobra.Command, o *serve.Options) *string {
	f := c.Flags()
	f.IntVar(&o.Engine.Pages, "pages", 1024,
		fmt.Sprintf("pages of keys and values, of %d tokens each, for all answers together", sample.PageRows))
	f.IntVar(&o.Engine.Context, "context", 0,
		"tokens of a prompt with its answer at most; 0 takes what the model and the pages have")
	f.IntVar(&o.Engine.Rows, "step-tokens", 256, "tokens that are computed at once: of prompts, and one of each answer")
	f.IntVar(&o.Engine.Running, "running", 64, "answers at once")
	f.IntVar(&o.Engine.Ahead, "ahead", 4, "tokens that --draft proposes at once")
	f.IntVar(&o.Queue, "queue", 256, "answers that may wait; more are refused, with status 429 or a text")
	f.Func("keys", "file of clients' keys, lines of NAME KEY: each client that waits has a fair share, by tokens", func(path string) (err error) {
		o.Keys, err = serve.ReadKeys(path)
		return err
	})
	f.IntVar(&o.Tokens, "queue-tokens", 1<<20, "tokens of answers that may wait; more are refused likewise, but one that waits alone is not")
	f.DurationVar(&o.Deadline, "deadline", 10*time.Minute,
		"time of a request, waiting included; of a policy 10s by default")
	f.StringVar(&o.Reasoning, "reasoning-parser", "", "how thoughts are told from what is said, under reasoning of a message: auto by the "+
		"chat template, or a name of vLLM's; by default they stay in texts, but gpt-oss's")
	f.DurationVar(&o.Drain, "drain", serve.Drain, "behind SIGTERM: time that answers under way have to end, while nobody new is heard")
	return f.String("draft", "", "smaller model with the same tokens, as MODEL is named, mtp for MODEL's own "+
		"layer for further tokens, or ngram for what stood behind the same tokens before: it proposes tokens, and MODEL computes them at once; answers are the same")
}

// bindPage declares the flags of the page for people, and gives the other server's address.
func bindPage(c *cobra.Command, o *serve.Options) *string {
	c.Flags().StringVar(&o.Pairs, "pairs", "", "file of JSON lines behind which pairs of answers are written that people keep on "+
		"the page: data of preferences")
	c.Flags().StringVar(&o.Batches, "batches", "", "folder of the files and batches of /v1/files and /v1/batches; a server that begins "+
		"goes on with batches that are not over")
	return c.Flags().String("beside", "", "address of another server of this API, http://HOST:PORT, whose answers the page shows "+
		"beside the model's; it is shown the client's token")
}

// readPage checks what the page is to use, before the model is read.
func readPage(o *serve.Options, beside string) (err error) {
	if beside != "" {
		if o.Beside, err = url.Parse(beside); err != nil || o.Beside.Host == "" ||
			o.Beside.Scheme != "http" && o.Beside.Scheme != "https" || o.Beside.Path != "" && o.Beside.Path != "/" {
			return exit.Usagef("serve: --beside is the address of a server, as http://127.0.0.1:8001")
		}
	}
	if o.Pairs == "" {
		return nil
	}
	f, err := os.OpenFile(o.Pairs, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return exit.Usagef("serve: --pairs: %v", err)
	}
	return f.Close()
}

// serving is what is said of a server that has begun.
type serving struct {
	Model string `json:"model"`
	URL   string `json:"url"`
}

// source is where a model is, and its draft; follow has newer checkpoints take its place.
type source struct {
	path, tokenizer, draft string
	follow                 bool
}

// run serves until a signal comes.
func run(c *cobra.Command, from source, l net.Listener, o serve.Options, robots policy.Options) error {
	var options []trained.Option
	if o.Engine.Further = from.draft == ownDraft; o.Engine.Further {
		options, from.draft = append(options, trained.Further), ""
	}
	if o.Engine.Lookup = from.draft == ngramDraft; o.Engine.Lookup {
		from.draft = ""
	}
	f, err := followed(from, o)
	if err != nil {
		return err
	}
	m, err := trained.Open(from.path, from.tokenizer, options...)
	if err != nil {
		return err
	}
	defer m.Close()
	for _, n := range m.Notes {
		fmt.Fprintln(c.ErrOrStderr(), "note:", n)
	}
	if policies.Acts(m) { //lfvet:kind robots are served by a protocol of their own
		if err := only(c, "a policy", textFlags); err != nil {
			return err
		}
		return runPolicy(c, m, l, robots)
	}
	if err := only(c, "no policy", policyFlags); err != nil {
		return err
	}
	if from.draft != "" {
		if o.Draft, err = trained.Open(from.draft, from.tokenizer); err != nil {
			return fmt.Errorf("--draft: %w", err)
		}
		defer o.Draft.Close()
	}
	o.Processor = from.tokenizer
	s, err := serve.New(m, o)
	if err != nil {
		return err
	}
	if o.Reasoning == "auto" && !s.Thinks() {
		fmt.Fprintln(c.ErrOrStderr(), "note: the chat template tells of no reasoning: --reasoning-parser auto has no effect")
	}
	machine.TightHeap() // what reading weights takes has gone
	defer s.Close()
	defer f.follow(c, s, options)()
	if err := announce(c, serving{o.Name, fmt.Sprintf("%s://%s/v1", scheme(l, "http"), l.Addr())}); err != nil {
		return err
	}
	return s.Serve(c.Context(), l)
}

// announce says where a model is served.
func announce(c *cobra.Command, at serving) error {
	return cli.Emit(c, at, func(w io.Writer) { fmt.Fprintf(w, "serving %s at %s\n", at.Model, at.URL) })
}

// secure is a listener for TLS.
type secure struct{ net.Listener }

// listen opens an address, for TLS if there is a certificate.
func listen(address, cert, key string) (net.Listener, error) {
	if (cert == "") != (key == "") {
		return nil, exit.Usagef("serve: --tls-cert and --tls-key go together")
	}
	var pair tls.Certificate
	if cert != "" {
		var err error
		if pair, err = tls.LoadX509KeyPair(cert, key); err != nil {
			return nil, exit.Usagef("serve: %v", err)
		}
	}
	l, err := cli.Listen(address, "--port")
	if err != nil {
		return nil, err
	}
	if cert == "" {
		return l, nil
	}
	return secure{tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair},
		MinVersion: tls.VersionTLS12})}, nil
}

// scheme is a protocol's name at a listener: http or https, ws or wss.
func scheme(l net.Listener, plain string) string {
	if _, ok := l.(secure); ok {
		return plain + "s"
	}
	return plain
}
