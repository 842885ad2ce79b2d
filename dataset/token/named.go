package token

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// named is a chat format that goes by a name: what stands before and after each turn. EOS and BOS stand for
// the tokenizer's tokens of that name. Source: the registry of LoongForge's and LLaMA-Factory's templates,
// and the models' cards.
type named struct {
	prefix    string // of a conversation
	system    string // one %s, the system message; "" writes it as it is
	standard  string // system message of conversations without one
	user      string // one %s, the message; up to where the answer begins
	separator string // between rounds
	stop      string // behind each answer
	last      string // behind the last answer only
	inside    bool   // the system message is written at the start of the first user's
}

const (
	bosMark = "\x00bos"
	eosMark = "\x00eos"
)

// qwenChat is the format of Qwen's models.
var qwenChat = named{system: "<|im_start|>system\n%s<|im_end|>\n", standard: "You are a helpful assistant.",
	separator: "\n", user: "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n", stop: "<|im_end|>"}

var llama2 = named{system: "<<SYS>>\n%s\n<</SYS>>\n\n", user: bosMark + "[INST] %s [/INST]", stop: eosMark,
	inside: true}

var llama3 = named{prefix: bosMark, system: "<|start_header_id|>system<|end_header_id|>\n\n%s<|eot_id|>",
	stop: "<|eot_id|>",
	user: "<|start_header_id|>user<|end_header_id|>\n\n%s<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"}

var namedChats = map[string]named{
	"empty":       {user: "%s", last: eosMark},
	"no-template": {prefix: bosMark, user: "%s", stop: eosMark},
	"default":     {system: "%s\n", user: "Human: %s\nAssistant:", separator: "\n", stop: eosMark},
	"alpaca": {standard: "Below is an instruction that describes a task. Write a response that " +
		"appropriately completes the request.\n\n",
		user: "### Instruction:\n%s\n\n### Response:\n", separator: "\n\n", stop: eosMark},
	"baichuan":  {user: "<reserved_102>%s<reserved_103>", last: eosMark},
	"baichuan2": {user: "<reserved_106>%s<reserved_107>", last: eosMark},
	"chatml":    qwenChat,
	"qwen":      qwenChat,
	"qwen2-vl":  qwenChat,
	"qwen3-vl":  qwenChat,
	"mimo":      qwenChat,
	"llama2":    llama2,
	"llama2_zh": {system: llama2.system, user: llama2.user, stop: llama2.stop, inside: true,
		standard: "You are a helpful assistant. 你是一个乐于助人的助手。"},
	"llama3":              llama3,
	"llama3.1":            llama3,
	"mistral":             {prefix: bosMark, user: "[INST] %s [/INST]", stop: eosMark},
	"deepseek":            {prefix: bosMark, system: "%s\n\n", user: "User: %s\n\nAssistant:", stop: eosMark},
	"deepseek3":           {prefix: bosMark, user: "<｜User｜>%s<｜Assistant｜>", stop: eosMark},
	"deepseek3.1-nothink": {prefix: bosMark, user: "<｜User｜>%s<｜Assistant｜></think>", stop: eosMark},
	"internvl2_5": {system: qwenChat.system, user: qwenChat.user, separator: "\n", stop: qwenChat.stop,
		standard: "你是书生·万象，英文名是InternVL，是由上海人工智能实验室、清华大学及多家合作单位联合开发的多模态大语言模型。"},
}

// TemplateNames lists the chat formats that go by a name, besides those that end in -hf: these are the tokenizer's own.
func TemplateNames() []string { return slices.Sorted(maps.Keys(namedChats)) }

// NamedTemplate writes a chat format as a Jinja template; it reports false for an unknown name. Images
// and videos in messages become the tokens that t has for them.
func NamedTemplate(name string, t interface{ TokenID(string) (int32, bool) }) (string, bool) {
	c, ok := namedChats[name]
	if !ok {
		return "", false
	}
	image, video := "", ""
	if m, ok := t.(Marker); ok {
		image, video = m.MediaMarks()
	}
	var b strings.Builder
	b.WriteString("{%- macro text(content) -%}{%- if content is string -%}{{ content }}{%- else -%}{%- " +
		"for part in content -%}")
	fmt.Fprintf(&b, "{%%- if part.type == 'image' -%%}{{ %s }}{%%- elif part.type == 'video' -%%}{{ %s }}{%%- else "+
		"-%%}{{ part.text }}{%%- endif -%%}", quoted(mediaMark(t, image, "<|image_pad|>", "<IMG_CONTEXT>", "<image>")),
		quoted(mediaMark(t, video, "<|video_pad|>", "<video>")))
	b.WriteString("{%- endfor -%}{%- endif -%}{%- endmacro -%}\n")
	fmt.Fprintf(&b, "{%%- set ns = namespace(system=%s, first=true) -%%}\n", quoted(c.standard))
	b.WriteString("{%- for m in messages -%}{%- if m.role == 'system' -%}{%- set ns.system = " +
		"text(m.content) -%}{%- endif -%}{%- endfor -%}\n")
	b.WriteString(filled(c.prefix, ""))
	system := c.system
	if system == "" {
		system = "%s"
	}
	if !c.inside {
		fmt.Fprintf(&b, "{%%- if ns.system -%%}%s{%%- endif -%%}", filled(system, "ns.system"))
	}
	b.WriteString("\n{%- for m in messages -%}\n{%- if m.role == 'user' -%}")
	fmt.Fprintf(&b, "{%%- if not ns.first -%%}%s{%%- endif -%%}", filled(c.separator, ""))
	if before, after, _ := strings.Cut(c.user, "%s"); c.inside {
		fmt.Fprintf(&b, "%s{%%- if ns.first and ns.system -%%}%s{%%- endif -%%}{{ text(m.content) }}%s",
			filled(before, ""), filled(system, "ns.system"), filled(after, ""))
	} else {
		b.WriteString(filled(c.user, "text(m.content)"))
	}
	b.WriteString("{%- set ns.first = false -%}\n{%- elif m.role == 'assistant' -%}{% generation %}")
	b.WriteString(filled("%s"+c.stop, "text(m.content)"))
	if c.last != "" {
		fmt.Fprintf(&b, "{%%- if loop.last -%%}%s{%%- endif -%%}", filled(c.last, ""))
	}
	b.WriteString("{% endgeneration %}\n{%- elif m.role != 'system' -%}{{ raise_exception('the roles " +
		"are system, user and assistant, not ' ~ m.role) }}{%- endif -%}\n{%- endfor -%}")
	return b.String(), true
}

// Marker is a tokenizer whose model says which tokens stand for images and videos; "" leaves it to the names
// that tokenizers have for them.
type Marker interface {
	MediaMarks() (image, video string)
}

// Marked is a tokenizer with the tokens that its model's configuration names.
type Marked struct {
	*Tokenizer
	Image, Video string
}

// MediaMarks implements Marker.
func (m Marked) MediaMarks() (image, video string) { return m.Image, m.Video }

// mediaMark is the model's own mark or else the first of the names that the tokenizer has, between the
// tokens that open and end vision where it has those.
func mediaMark(t interface{ TokenID(string) (int32, bool) }, own string, names ...string) string {
	if own != "" {
		names = []string{own}
	}
	for _, name := range names {
		if _, ok := t.TokenID(name); !ok {
			continue
		}
		if _, ok := t.TokenID("<|vision_start|>"); ok && strings.HasSuffix(name, "_pad|>") {
			return "<|vision_start|>" + name + "<|vision_end|>"
		}
		return name
	}
	return names[len(names)-1] // no token: an error of the data, which names the mark
}

// filled writes a text with its marks, and value in place of %s, as Jinja output.
func filled(text, value string) string {
	var b strings.Builder
	for text != "" {
		at := len(text)
		for _, mark := range []string{"%s", bosMark, eosMark} {
			if i := strings.Index(text, mark); i >= 0 {
				at = min(at, i)
			}
		}
		if at > 0 {
			fmt.Fprintf(&b, "{{ %s }}", quoted(text[:at]))
			text = text[at:]
			continue
		}
		switch {
		case strings.HasPrefix(text, "%s"):
			fmt.Fprintf(&b, "{{ %s }}", value)
			text = text[2:]
		case strings.HasPrefix(text, bosMark):
			b.WriteString("{{ bos_token }}")
			text = text[len(bosMark):]
		default:
			b.WriteString("{{ eos_token }}")
			text = text[len(eosMark):]
		}
	}
	return b.String()
}

// quoted is a Jinja string.
func quoted(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`).Replace(s) + "'"
}
