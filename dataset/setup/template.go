package setup

import (
	"os"
	"strings"
	"time"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/token"
)

// Template is the chat template of a run: the one that data.template names, with the tokens that tok has for
// images, or the tokenizer's own.
func Template(c *configs.Config, tok interface{ TokenID(string) (int32, bool) },
	conf *token.Config) (*token.Template, error) {
	text := conf.ChatTemplate
	// those are the tokenizer's own
	if name := c.Run.Data.Template; name != "" && !strings.HasSuffix(name, "-hf") {
		var known bool
		if text, known = token.NamedTemplate(name, tok); !known {
			text, known = conf.ChatTemplates[name]
		}
		if !known {
			b, err := os.ReadFile(name)
			if err != nil {
				return nil, c.Fault("data.template", err.Error(),
					"name a file with a Jinja template, or one of "+strings.Join(token.TemplateNames(), ", "))
			}
			text = string(b)
		}
	}
	if text == "" && len(conf.ChatTemplates) == 0 {
		return nil, c.Fault("data.template", "the tokenizer has no chat template", "name a file with a Jinja template")
	}
	t, err := token.NewTemplate(text, conf)
	if err != nil {
		return nil, c.Fault("data.template", err.Error(), "")
	}
	if day := c.Run.Data.Date; day != "" {
		if t.Now, err = time.Parse(time.DateOnly, day); err != nil {
			return nil, c.Fault("data.template_date", err.Error(), "write it as 2026-01-31")
		}
	}
	return t, nil
}
