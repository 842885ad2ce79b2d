"""Chat templates in the style of published models, conversations, and small expressions for the template goldens."""

LLAMA2 = r"""{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate: user, assistant, user, ...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""

LLAMA3 = r"""{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""

LLAMA31 = r"""{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system text comes out first, so that it can be put beside the tools. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{{- "Today is " + date_string + "\n\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "Functions you may call, as JSON:\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}

{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Cannot put tools in the first user message when there is none!") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' -}}
    {{- "Answer with a call of one of these functions.\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""

CHATML = r"""{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful assistant<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

QWEN25 = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are Q, a helpful assistant.' }}
    {%- endif %}
    {{- "\n\n# Tools\n\nSignatures stand within <tools></tools> XML tags:\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\nAnswer with <tool_call></tool_call>:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou are Q, a helpful assistant.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\n<tool_call>\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- message.content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""

QWEN3 = r"""{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
"""

INTERNLM = r"""{{ bos_token }}{% for message in messages %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}
"""

DEEPSEEK_LLM = r"""{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ 'User: ' + message['content'] + '

' }}{% elif message['role'] == 'assistant' %}{{ 'Assistant: ' + message['content'] + eos_token }}{% elif message['role'] == 'system' %}{{ message['content'] + '

' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"""

DEEPSEEK_R1 = r"""{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='', is_first_sp=true) %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\n\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' in message %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls'] %}{%- if not ns.is_first %}{%- if message['content'] is none %}{{'<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + tool['function']['name'] + '\n' + '```json' + '\n' + tool['function']['arguments']|string + '\n' + '```' + '<｜tool▁call▁end｜>'}}{%- else %}{{'<｜Assistant｜>' + message['content'] + '<｜tool▁calls▁begin｜>' + tool['function']['name']}}{%- endif %}{%- set ns.is_first = true -%}{%- else %}{{'\n' + '<｜tool▁call▁begin｜>' + tool['function']['name'] + '<｜tool▁call▁end｜>'}}{%- endif %}{%- endfor %}{{'<｜tool▁calls▁end｜><｜end▁of▁sentence｜>'}}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' not in message %}{%- if ns.is_tool %}{{'<｜tool▁outputs▁end｜>' + message['content'] + '<｜end▁of▁sentence｜>'}}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}{{'<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>' + message['content'] + '<｜tool▁output▁end｜>'}}{%- set ns.is_output_first = false %}{%- else %}{{'<｜tool▁output▁begin｜>' + message['content'] + '<｜tool▁output▁end｜>'}}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'<｜tool▁outputs▁end｜>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜><think>\n'}}{% endif %}"""

MISTRAL_V1 = r"""{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"""

MISTRAL_V3 = r"""{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}

{#- Users and assistants must take turns, tools aside. #}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, conversation roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}
    {%- endif %}
{%- endfor %}
"""

GEMMA = r"""{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"""

GENERATION = r"""{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' }}
        {%- generation %}
        {{- message.content }}
        {{- '<|im_end|>' }}
        {%- endgeneration %}
        {{- '\n' }}
    {%- else %}
        {{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

MACROS = r"""{%- macro turn(role, text='', end='<end>') -%}
<{{ role }}>{{ text | trim }}{{ end }}
{%- endmacro -%}
{%- macro parts(content) %}
  {%- if content is string -%}
    {{ content }}
  {%- else %}
    {%- for part in content if part.type != 'audio' %}
      {%- if part['type'] == 'image' or 'image' in part %}<image_{{ loop.index }}>{% elif part.text is defined %}{{ part.text }}{% else %}?{% endif %}
    {%- endfor %}
  {%- endif %}
{%- endmacro %}
{%- set roles = messages | map(attribute='role') | unique | join('+') -%}
{%- set header %}
roles: {{ roles }}, {{ messages | length }} turns
{% endset -%}
{{ header }}
{%- for message in messages %}
  {%- if message.role == 'tool' %}{% continue %}{% endif %}
  {%- if loop.index > 6 %}{% break %}{% endif %}
{{ turn(message.role, text=parts(message.content)) }}
{% else %}
nothing
{% endfor %}
{%- filter upper %}{{ turn('done', end='!') }}{% endfilter %}
  {% if tools -%}
    {% for t in tools | sort(attribute='function.name') %}{{ t.function.name }}({{ t.function.parameters.properties | dictsort | map('first') | join(', ') }}){{ '; ' if not loop.last }}{% endfor %}
  {%- endif %}
{% raw %}{{ not evaluated }}{% endraw +%}
end"""

WHITESPACE = """  {% if true %}  
    x {{ 1 }}
  {% endif %}   
\ty{# note #}
   {# alone #}
z{%+ if true %} +{% endif +%}
{% for i in range(3) %}
    {{ i }},
    {%- if i == 1 -%}   one   {%- endif %}

{% endfor %}
 {%- raw -%}  {% raw {{ }}  {%- endraw %}  
tail   {{- 'a' -}}   b
\r\nline\r
"""

TEMPLATES = {k.lower(): v for k, v in dict(
    LLAMA2=LLAMA2, LLAMA3=LLAMA3, LLAMA31=LLAMA31, CHATML=CHATML, QWEN25=QWEN25, QWEN3=QWEN3, INTERNLM=INTERNLM, DEEPSEEK_LLM=DEEPSEEK_LLM, DEEPSEEK_R1=DEEPSEEK_R1,
    MISTRAL_V1=MISTRAL_V1, MISTRAL_V3=MISTRAL_V3, GEMMA=GEMMA, GENERATION=GENERATION, MACROS=MACROS, WHITESPACE=WHITESPACE).items()}

U, A, S, T = [lambda c, r=r, **k: {"role": r, "content": c, **k} for r in ("user", "assistant", "system", "tool")]
CALL = {"id": "abcdef123", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 3, "units": None}}}
CALL2 = {"id": "zyxwvu987", "type": "function", "function": {"name": "add", "arguments": {"a": 1.5, "b": -2}}}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a \"city\" <&>", "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}}, "required": ["city"]}}},
         {"type": "function", "function": {"name": "add", "description": "Sum", "parameters": {"type": "object", "properties": {"b": {"type": "number"}, "a": {"type": "number"}}}, "return": {"type": "number"}}}]

CHATS = {
    "one": dict(messages=[U("Hello, how are you?")]),
    "prompt": dict(messages=[U("Hi")], add_generation_prompt=True),
    "turns": dict(messages=[U(" What is 2+2? "), A("It is 4.\n"), U("And 3+3?\n\nQuick!"), A("6")]),
    "system": dict(messages=[S("You are terse.\n"), U("你好 🙂"), A("Grüezi"), U("…")], add_generation_prompt=True),
    "thinking": dict(messages=[U("a"), A("<think>\nhm\n</think>\n\nb"), U("c"), A("<think>\nwell\n</think>\n\nd")]),
    "no_thinking": dict(messages=[U("a"), A("b"), U("c")], add_generation_prompt=True, enable_thinking=False),
    "tools": dict(messages=[S("Use tools."), U("Weather?"), {"role": "assistant", "content": None, "tool_calls": [CALL]}, T("{\"temp\": 12}", tool_call_id="abcdef123"), A("12 °C"), U("Thanks")], tools=TOOLS, add_generation_prompt=True),
    "two_calls": dict(messages=[U("Both"), {"role": "assistant", "content": "", "tool_calls": [CALL, CALL2]}, T("1", tool_call_id="abcdef123"), T("2", tool_call_id="zyxwvu987"), A("done")], tools=TOOLS),
    "broken_order": dict(messages=[A("I begin"), U("no")]),
    "parts": dict(messages=[{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}, {"type": "audio"}]}, A("A cat.")]),
    "date": dict(messages=[U("x")], date_string="1 Jan 2030", tools_in_user_message=False, tools=TOOLS),
}
SPECIAL = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>")

VARS = {"s": "Hello, World", "n": 7, "x": 2.5, "t": True, "no": None, "l": [3, 1, 2], "words": ["b", "A", "c", "a"], "d": {"z": 1, "a": [1, 2], "m": {"k": "v"}}, "e": [], "es": "",
        "users": [{"name": "Bo", "age": 3, "ok": True}, {"name": "al", "age": 1, "ok": False}, {"name": "Cy", "age": 2}], "u": "Ünïcödé 🙂 straße", "ws": " \t a b\n c  ", "q": "it's \"q\" \\ \n é\x00\x7f"}

SNIPPETS = r"""
{% macro box(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call box('b') %}in {{ n }}{% endcall %}|{% call box(t='i') %}{% call box('u') %}x{% endcall %}{% endcall %}
{% macro each(l) %}{% for i in l %}{{ caller(i, loop.index) }};{% endfor %}{% endmacro %}{% call(x, k='d') each([3, 1]) %}{{ x }}={{ k }}{% endcall %}
{% macro plain() %}p{% endmacro %}{% call plain() %}x{% endcall %}
{% macro m(a) %}{{ a }} {{ varargs }} {{ kwargs }}{% endmacro %}{{ m(1, 2, 3, z=4) }}{{ m(1) }}
{% macro m(a) %}{{ caller is defined }} {{ caller }}{% endmacro %}{{ m(1) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% call 5 %}x{% endcall %}
{% for g in users | groupby('name') %}{{ g.grouper }}:{{ g.list | length }},{{ g[0] }} {% endfor %}{% for k, v in words | map('upper') | groupby(0) %}{{ k }}{{ v }}{% endfor %}
{% for g, l in [{'k': 'b'}, {'k': 'A'}, {'k': 'a'}, {'q': 1}] | groupby('k', default='zz') %}{{ g }}={{ l | length }};{% endfor %}{{ users | groupby('ok', default=false) | list | length }}
{% for g, l in [{'k': 'b'}, {'k': 'A'}, {'k': 'a'}] | groupby('k', case_sensitive=true) %}{{ g }}={{ l | length }};{% endfor %}
{{ range(7) | batch(3) | list }} {{ range(7) | batch(3, 'x') | list }} {{ [] | batch(2) | list }} {{ range(4) | batch(2, 'x') | list }}
{{ range(7) | slice(3) | list }} {{ range(7) | slice(3, 'x') | list }} {{ range(6) | slice(3, 'x') | list }} {{ [] | slice(2) | list }}
{% for i in [{'n': 1, 'c': [{'n': 2, 'c': [{'n': 3}]}, {'n': 4}]}, {'n': 5}] recursive %}{{ i.n }}.{{ loop.depth }}.{{ loop.depth0 }}{% if i.c %}({{ loop(i.c) }}){% endif %}{{ loop.index }}{% endfor %}
{% for i in [1, 2] %}{{ loop([3]) }}{% endfor %}
{% for i in [[1, []], []] recursive %}<{{ loop(i) if i }}{% else %}none{% endfor %}
{{ strftime_now('%a %A %b %B %c %d %D %e %F %f %g %G %h %H %I %j %k %l %m %M %n %p %P %r %R') }}|{{ strftime_now('%S %t %T %u %U %V %w %W %x %X %y %Y %% %C %Ey %Od %z%Z') }}
{{ strftime_now('%-d %-m %-H %-I %-j %_d %_m %0e %^a %^B %#p %5d %3Y %-e %_5H %10A|%-y %q %') }}
{{ "\N{LATIN SMALL LETTER E WITH ACUTE}\N{Euro Sign} \N{CJK UNIFIED IDEOGRAPH-4E2D} \N{HANGUL SYLLABLE GAG}" }}
{{ "\N{NO SUCH THING}" }}
{{ s }}|{{ n }}|{{ x }}|{{ t }}|{{ no }}|{{ l }}|{{ d }}|{{ missing }}|{{ q }}|{{ [q, u, es] }}
{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ 1e3 }} {{ 1.0 }} {{ 1_000 }} {{ 10 / 4 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}
{{ -n }} {{ +n }} {{ -x|abs }} {{ (-x)|abs }} {{ not t }} {{ not es }} {{ n - -1 }}
{{ s ~ n ~ no ~ missing ~ l }} {{ 'a' 'b' "c" }} {{ 'a' * 3 }} {{ 3 * 'ab' }} {{ [1] * 2 + [3] }} {{ (1, 2) + (3,) }} {{ 'x' * -1 }}|
{{ n == 7 }} {{ n == 7.0 }} {{ n != '7' }} {{ 1 == true }} {{ 1 < n <= 7 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ (1,) == [1] }} {{ none == missing }} {{ d == {'z': 1, 'a': [1, 2], 'm': {'k': 'v'}} }}
{{ 'ell' in s }} {{ 'z' in d }} {{ 'q' not in d }} {{ 3 in l }} {{ 1.0 in l }} {{ not 'x' in s }} {{ '' in s }} {{ n in missing }}
{{ t and n }} {{ es or 'other' }} {{ es and n }} {{ no or none }} {{ 1 or x/0 }} {{ false and boom() }}
{{ 'yes' if t else 'no' }} {{ 'yes' if es }}| {{ 'a' if no else 'b' if es else 'c' }} {{ (1 if t) + 1 }}
{{ s[0] }} {{ s[-1] }} {{ s[1:4] }} {{ s[::-1] }} {{ s[:-2] }} {{ s[100:] }}|{{ s[5:2] }}|{{ s[::2] }} {{ s[-3:] }} {{ s[100] }}| {{ u[0] }}{{ u[7:9] }}{{ u[-6:] }}
{{ l[0] }} {{ l[-1] }} {{ l[1:] }} {{ l[::-1] }} {{ l[5] }}| {{ l[:2] }} {{ (1, 2, 3)[1:] }} {{ l[-100:100] }} {{ l[2::-1] }} {{ l[:-5:-1] }} {{ [][::-1] }}
{{ d.z }} {{ d['a'] }} {{ d.m.k }} {{ d['m']['k'] }} {{ d.get('z') }} {{ d.get('q') }} {{ d.get('q', 5) }} {{ d.nothing }}| {{ d['nothing'] }}| {{ d.a.0 }} {{ d.a[1] }}
{{ d.items() | list }} {{ d.keys() | list }} {{ d.values() | list }} {% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}
{{ users | map(attribute='name') | list }} {{ users | map(attribute='ok', default='?') | join(',') }} {{ words | map('upper') | list }} {{ users | map(attribute='ok') | list | length }}
{{ users | selectattr('ok') | map(attribute='name') | list }} {{ users | rejectattr('ok') | map(attribute='name') | list }} {{ users | selectattr('age', '>', 1) | map(attribute='name') | join }} {{ users | selectattr('ok', 'defined') | list | length }}
{{ l | select('odd') | list }} {{ l | reject('equalto', 1) | list }} {{ words | select('in', ['a', 'b']) | list }} {{ [0, 1, '', 'a', none] | select | list }} {{ l | select('divisibleby', 2) | list }}
{{ l | sort }} {{ l | sort(reverse=true) }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ users | sort(attribute='age') | map(attribute='name') | list }} {{ users | sort(attribute='name', reverse=true) | map(attribute='name') | list }}
{{ words | unique | list }} {{ [1, 1.0, true, 2] | unique | list }} {{ l | min }} {{ l | max }} {{ words | max }} {{ users | max(attribute='age') }} {{ l | sum }} {{ users | sum(attribute='age') }} {{ [] | sum }} {{ [] | first }}| {{ l | sum(start=10) }}
{{ l | first }} {{ l | last }} {{ s | first }} {{ s | last }} {{ s | list }} {{ d | list }} {{ l | reverse | list }} {{ s | reverse }} {{ l | length }} {{ s | length }} {{ u | count }} {{ d | length }} {{ missing | length }}
{{ missing | default('dflt') }} {{ es | default('dflt') }}| {{ es | default('dflt', true) }} {{ no | d('x') }} {{ no | default('x', boolean=true) }} {{ (d.q.z is defined) if d.q is defined else 'no' }}
{{ n is defined if n else 'no' }}
{{ ws | trim }}| {{ 'xxaxx' | trim('x') }} {{ s | upper }} {{ s | lower }} {{ u | upper }} {{ 'hELLO wORLD-foo (bar' | title }} {{ 'hELLO wORLD' | capitalize }} {{ s | replace('l', 'L') }} {{ s | replace('l', 'L', 1) }} {{ 'abc' | replace('', '-') }}
{{ ws.strip() }}| {{ ws.lstrip() }}| {{ ws.rstrip() }}| {{ 'xxaxx'.strip('x') }} {{ 'xyaxy'.lstrip('yx') }} {{ 'abcba'.rstrip('ab') }}
{{ 'a,b,,c'.split(',') }} {{ 'a,b,,c'.split(',', 1) }} {{ ' a  b c '.split() }} {{ ' a  b c '.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ 'abc'.split('x') }} {{ ''.split(',') }} {{ ''.split() }} {{ 'a--b'.split('--')[-1] }}
{{ 'a\nb\r\nc\n'.splitlines() }} {{ s.startswith('Hell') }} {{ s.endswith(('x', 'ld')) }} {{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('zz') }} {{ s.index('W') }} {{ s.count('l') }} {{ u.find('c') }} {{ s.startswith('') }}
{{ '-'.join(['a', 'b']) }} {{ ', '.join(words) }} {{ ''.join([]) }}| {{ s.replace('o', '0') }} {{ s.replace('o', '0', 1) }} {{ s.upper() }} {{ s.lower() }} {{ 'a b'.title() }} {{ "they're x1y".title() }} {{ s.capitalize() }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('bc') }} {{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }}
{{ 'abc'.isalpha() }} {{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ ''.isdigit() }} {{ 'ab'.islower() }} {{ 'AB1'.isupper() }} {{ '1'.isupper() }} {{ '7'.zfill(3) }} {{ 'a'.ljust(3) }}| {{ 'a'.rjust(3, '.') }}
{{ '{} and {}'.format(1, 'b') }} {{ '{1}{0}'.format('a', 'b') }} {{ '{x}'.format(x=3) }} {{ '%s-%d-%.2f' % ('a', 3, 1.5) }} {{ '%s' % 'x' }} {{ '%s %s' | format('a', 2) }} {{ '%05d|%-5s|%5s' % (42, 'ab', 'cd') }} {{ '{{}}'.format() }} {{ '100%%' % () }}
{{ l | join }} {{ l | join(', ') }} {{ users | join('/', attribute='name') }} {{ 'abc' | join('-') }} {{ [1, none, true, 2.0] | join(' ') }}
{{ '42' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ 3.9 | int }} {{ -3.9 | int }} {{ ' 7 ' | int }} {{ '3.7' | int }} {{ 'ff' | int(base=16) }} {{ '1.5' | float }} {{ 'x' | float }} {{ 3 | float }} {{ true | int }} {{ 5 | string }} {{ 1.0 | string ~ 'x' }} {{ none | string }}
{{ 3.14159 | round(2) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 3.2 | round(method='ceil') }} {{ 3.7 | round(0, 'floor') }} {{ -3 | abs }} {{ 5 | abs }} {{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 123456789.123 }} {{ 0.1 + 0.2 }} {{ 1e100 }} {{ 5 / 1 }}
{{ d | tojson }} {{ l | tojson }} {{ q | tojson }} {{ u | tojson }} {{ [none, true, 1.0, 1e20, 'a/b<>&'] | tojson }} {{ 'é🙂' | tojson(ensure_ascii=true) }} {{ {} | tojson }} {{ [] | tojson }} {{ (1, 2) | tojson }} {{ {1: 2, none: 3, true: 4} | tojson }}
{{ d | tojson(indent=2) }} {{ [[], {}, [1]] | tojson(indent=4) }} {{ d | tojson(separators=(',', ':')) }} {{ d | tojson(sort_keys=true) }} {{ d | tojson(indent=2, separators=(',', ': ')) }}
{{ d | dictsort }} {{ {'b': 1, 'A': 2} | dictsort }} {{ {'b': 1, 'A': 2} | dictsort(true) }} {{ {'b': 1, 'A': 2} | dictsort(by='value') }} {{ {'b': 1, 'A': 2} | dictsort(reverse=true) }} {{ d | items | list }} {{ missing | items | list }}
{{ 'a\nb\n\nc' | indent }} {{ 'a\nb' | indent(2, true) }} {{ 'a\n\nb' | indent('> ', blank=true) }} {{ 'a b_c d-e' | wordcount }} {{ '<a href="x">&\'' | e }} {{ s | safe }}
{{ n is defined }} {{ missing is defined }} {{ missing is undefined }} {{ no is none }} {{ n is not none }} {{ s is string }} {{ n is number }} {{ t is number }} {{ x is float }} {{ n is integer }} {{ t is integer }} {{ t is boolean }} {{ d is mapping }} {{ l is iterable }} {{ s is iterable }} {{ n is iterable }} {{ l is sequence }} {{ d is sequence }} {{ s is sequence }} {{ d.get is callable }}
{{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(2) }} {{ n is eq 7 }} {{ n is equalto(8) }} {{ n is ne 7 }} {{ n is gt 3 }} {{ n is lessthan 3 }} {{ n is ge 7 }} {{ 1 is in [1, 2] }} {{ 'a' is in 'abc' }} {{ no is sameas none }} {{ t is true }} {{ 1 is true }} {{ t is false }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'tojson' is filter }} {{ 'odd' is test }} {{ not n is odd }} {{ n is not odd and t }}
{% set a = 1 %}{% for i in l %}{% set a = a + i %}{{ a }},{% endfor %}{{ a }} {% if t %}{% set a = 9 %}{% endif %}{{ a }}
{% set ns = namespace(c=0, f=false) %}{% for i in l %}{% set ns.c = ns.c + i %}{% endfor %}{{ ns.c }} {{ ns.f }} {{ ns.zz }}| {% set ns.new = [1] %}{{ ns.new }}
{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }};{% endfor %}
{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{% endfor %} {% for a, b in [(1, 2), [3, 4]] %}{{ a }}-{{ b }} {% endfor %} {% for i in e %}x{% else %}empty{% endfor %} {% for i in l if i > 1 %}{{ loop.index }}:{{ i }}/{{ loop.length }} {% else %}none{% endfor %} {% for i in missing %}x{% endfor %}
{% for i in range(3) %}{% for j in range(i) %}{{ loop.depth }}{{ i }}{{ j }} {% endfor %}{% endfor %} {{ range(3) | list }} {{ range(1, 6, 2) | list }} {{ range(3, 0, -1) | list }} {% for i in range(10) %}{% if i == 2 %}{% continue %}{% elif i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(1, c='y') }} {{ m() }} {{ m(a=5, b=[1]) }} {{ m(1) | length }} {% set f = m %}{{ f(0) }}
{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * fact(n - 1) | int }}{% endif %}{% endmacro %}{{ fact(6) }} {% macro outer() %}{{ g }}{% endmacro %}{% set g = 'late' %}{{ outer() }}
{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set (c, dd) = [3, 4] %}{{ c }}{{ dd }} {% set tt = 1, 2, 3 %}{{ tt }} {% set blk %}in {{ n }}{% endset %}{{ blk }} {% set up | upper | trim %} abc {% endset %}{{ up }}|
{% with a = 1, b = 'z' %}{{ a }}{{ b }}{% endwith %}{{ a }}| {% filter upper %}abc {{ s }}{% endfilter %} {% filter replace('a', 'b') | trim %} aaa {% endfilter %}|
{{ dict(a=1, b='x') }} {{ dict([('k', 1)]) }} {{ dict({'x': 1}, y=2) }} {{ {'a': 1, 'b': {'c': [1, 2.5, 'x']}} }} {{ {'a': 1}.a }} {{ [1, 2, 3].index(2) }} {{ [1, 2, 1].count(1) }} {{ {1: 'a'}[1] }} {{ {'a': {}} }}
{# comment #}x{#- c -#} y {{- ' z' -}} w {{ '{{ }}' }} {{ "%}" }} {{ '\n' | length }} {{ '\x41\u00e9\t' }}| {{ 'a\qb' }} {{ "it's" }} {{ 'tab\\n' }}
{{ (n) }} {{ (n, ) }} {{ () }} {{ [] }} {{ {} }} {{ [1, 2,] }} {{ (1, 2) }} {{ 1, 2 }} {{ true }} {{ True }} {{ None }} {{ none }} {{ [true, none, 1.50, 'a'] }}
{{ l | map('string') | map('int') | sum }} {{ l | sort | first }} {{ l|join('-')|length }} {{ users[0].name | lower ~ '!' }} {{ users | first | attr('name') }}| {{ (users | last).name }} {{ users[-1]['name'][0] }} {{ n|string|length + 1 }}
{{ 'a' ~ (1 + 2) }} {{ 'a' ~ 'b' * 2 }} {{ 1 ~ 2 }} {{ n if n else s if s else '' }} {{ not not n }} {{ 1 + 1 == 2 and 2 + 2 == 4 }} {{ 5 > 3 > 1 }} {{ 5 > 3 == true }} {{ -2 ** 2 }} {{ 2 * 3 ** 2 }} {{ -n | abs }}
{{ ('a', 1) | tojson }} {{ s | tojson | length }} {{ 'x' | default | upper }} {{ es | first }}| {{ [[1, 2], [3]] | map('length') | list }} {{ [[2, 'b'], [1, 'a']] | sort }} {{ [3, 1] | sort | tojson }} {{ [d] | map(attribute='m.k') | list }} {{ [d] | map(attribute='a.1') | list }}
{{ 'a' ~ 1 + 2 }}
{{ n is defined is none }}
{{ raise_exception('no ' ~ n) }}
{{ missing.attr }}
{{ missing + 1 }}
{{ missing() }}
{{ l.append(1) }}
{{ d.update({'a': 1}) }}
{{ 1 / 0 }}
{{ 'a' + 1 }}
{{ [] + () }}
{{ 1 < 'a' }}
{{ no.x }}|{{ no['x'] }}|{{ n.x }}
{{ no | length }}
{{ no() }}
{{ n | nofilter }}
{{ n is notest }}
{% unknown %}
{% if n %}
{{ n
{{ 'abc }}
{% for i in 5 %}{% endfor %}
{% set a.b = 1 %}
{% set n.b = 1 %}
{% for a, b in l %}{% endfor %}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(z=2) }}
{{ range(1000000) }}
{{ l | map('nofilter') | list }}
{{ d.pop('a') }}
{{ s.__class__ }}|
{{ ''.__class__.__mro__ }}
{{ n n }}
{{ l[ }}
{% endif %}
{% break %}
{{ no | int + no | float }}
{{ l | tojson(indent=0) }}
{{ 'a'.split('') }}
{{ s.index('zz') }}
{{ none + 'a' }}
{{ u | title }} {{ u | capitalize }} {{ 'ǆ' | capitalize }} {{ 'ß' | upper }} {{ u.title() }} {{ 'İ' | lower | length }}
{{ "a" if false }}|{{ ("a" if false) is defined }} {{ [1,2,3][1:][0] }} {{ {"a b": 1}["a b"] }} {{ "x".join("abc") }} {{ 10 // 3 * 3 + 10 % 3 }}
""".strip("\n").split("\n")
