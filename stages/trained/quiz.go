package trained

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/sample"
)

// Quiz asks a trained model about images.
type Quiz struct {
	m         *Trained
	gen       *sample.Generator
	template  *token.Template
	processor *ImageProcessor
}

// OpenQuiz opens a model that sees, with the tokenizer, template and processor of dir, or of its own
// directory where dir is "".
func OpenQuiz(dir, checkpoints string, options ...Option) (*Quiz, func(), error) {
	m, err := Open(checkpoints, dir, options...)
	if err != nil {
		return nil, nil, err
	}
	if m.Model.Vision == nil {
		m.Close()
		return nil, nil, exit.Usagef("%s: a model of family %s does not see", checkpoints, m.Model.Family)
	}
	if dir == "" && m.Cfg != nil {
		dir = m.Cfg.Run.Data.Tokenizer
	}
	if dir == "" {
		dir = checkpoints
	}
	_, conf, err := token.LoadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	t, err := token.NewTemplate(conf.ChatTemplate, conf)
	if err != nil {
		return nil, nil, err
	}
	processor, err := m.imageProcessorOf(dir)
	if err != nil {
		return nil, nil, err
	}
	b, err := m.Backend()
	if err != nil {
		return nil, nil, err
	}
	gen, err := sample.New(m.Model, nil, tensor.F32, b, tensor.NewPool("quiz", 0), m.Fill)
	if err != nil {
		kernels.Close(b)
		return nil, nil, err
	}
	return &Quiz{m: m, gen: gen, template: t, processor: processor}, func() { gen.Close(); kernels.Close(b); m.Close() }, nil
}

// Model is the model that is asked.
func (q *Quiz) Model() *Trained { return q.m }

// Ask is the model's answer to a question about an image, or about none.
func (q *Quiz) Ask(text string, image []byte) (string, error) {
	return q.Answer(text, image, sample.Params{Max: 12})
}

// Asked is a user's turn with a question, behind an image or none.
func Asked(text string, image bool) dataset.Message {
	content := []map[string]string{{"type": "text", "text": text}}
	if image {
		content = append([]map[string]string{{"type": "image"}}, content...)
	}
	raw, _ := json.Marshal(map[string]any{"role": "user", "content": content}) // of strings alone
	return dataset.Message{Role: "user", Raw: raw}
}

// Answer is ask with other parameters of sampling.
func (q *Quiz) Answer(text string, image []byte, p sample.Params) (string, error) {
	prompt, err := q.template.Render([]dataset.Message{Asked(text, image != nil)}, nil, true, nil)
	if err != nil {
		return "", err
	}
	var images [][]byte
	if image != nil {
		images = append(images, image)
	}
	ids, pics, err := q.processor.Read(context.Background(), q.m.Tokenizer.Encode(prompt, false), images)
	if err != nil {
		return "", err
	}
	p.Stop = append(p.Stop, q.m.stop...)
	var out strings.Builder
	stream := q.m.Tokenizer.NewStream(true)
	err = q.gen.GenerateWith(ids, *pics, p, func(id int32) bool { out.WriteString(stream.Push(id)); return true })
	out.WriteString(stream.Flush())
	return strings.Join(strings.Fields(out.String()), " "), err
}
