package serve

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
)

// loraBody names an adapter as vLLM's clients do, and where it lies.
type loraBody struct {
	Name  string `json:"lora_name"`
	Path  string `json:"lora_path"`
	Again *bool  `json:"load_inplace"`
}

// lora answers what vLLM's clients ask of adapters: to load one that lies in the operator's folder, or to unload it.
func (s *Server) lora(change func(ctx context.Context, r *http.Request, b *loraBody) error, did string) http.HandlerFunc {
	return reading(s, func(w http.ResponseWriter, r *http.Request, b *loraBody) error {
		if s.tenants == nil || s.tenants.o.Dir == "" {
			return bad("lora_name", "the server has no adapters: --train has room for some, and --adapters-dir names the folder that they lie in")
		}
		ctx, cancel := context.WithTimeout(r.Context(), s.o.Deadline)
		defer cancel()
		err := change(ctx, r, b)
		if err == nil {
			_, _ = fmt.Fprintf(w, "Success: LoRA adapter '%s' %s successfully.", b.Name, did) // a client that has gone away needs none
		}
		return err
	})
}

func (s *Server) loadLora(ctx context.Context, r *http.Request, b *loraBody) error {
	o, key := &s.tenants.o, r.Header.Get(keyHeader)
	dir, err := filepath.Abs(o.Dir)
	path := b.Path
	if err == nil && !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	within, fault := filepath.Rel(dir, path)
	owner, label, deep := strings.Cut(within, string(filepath.Separator))
	if err != nil || fault != nil || !names.MatchString(owner) || deep && !names.MatchString(label) {
		return bad("lora_path", "lora_path is %.200q, and no adapter of the folder of --adapters-dir: NAME, or NAME/LABEL", b.Path)
	}
	if !names.MatchString(b.Name) || b.Name == s.o.Name {
		return bad("lora_name", "lora_name is %.70q, and no name of letters, digits, dots, lines and underlines, 64 at most, that is not the model's", b.Name)
	}
	if err := o.unlinked(owner, label); err != nil {
		return bad("lora_path", "%v", err)
	}
	for _, name := range []string{owner, b.Name} {
		if err := o.opens(name, key); err != nil {
			return err
		}
	}
	x := s.tenants.find(b.Name)
	fresh := x == nil
	if !fresh && !or(b.Again, false) {
		return bad("lora_name", "the adapter %q is loaded already: load_inplace replaces it", b.Name)
	}
	if !fresh {
		err = x.shows(r)
	} else if x = (&tenant{name: b.Name, key: key}); err == nil {
		err = s.begin(ctx, x, 0)
	}
	if err == nil {
		err = x.turn.enter(ctx, true)
	}
	if err != nil {
		return err
	}
	defer x.turn.leave(true)
	if err = s.alone(ctx, x, func() error { return s.tenants.slots.Load(x.slot, filepath.Join(dir, owner, label), false) }); err != nil {
		if fresh {
			_, _ = s.remove(ctx, x, nil, nil) // it has nothing to draw with
		}
		return bad("lora_path", "%v", err)
	}
	return nil
}

func (s *Server) unloadLora(ctx context.Context, r *http.Request, b *loraBody) error {
	x := s.tenants.find(b.Name)
	if x == nil {
		return unknown(b.Name)
	}
	err := x.shows(r)
	if err == nil {
		err = x.turn.enter(ctx, true)
	}
	if err == nil {
		defer x.turn.leave(true)
		_, err = s.remove(ctx, x, nil, nil)
	}
	return err
}
