"""Checks the parameter counts of configs/models/qwen-vl, internvl, llava, llava-onevision and of Gemma 3 with images against transformers (the last: vlm_modules.py), on the meta device: prints each file with the count, and
writes it into the file. Run from the repository root: python bench/golden/vlm_counts.py"""
import yaml,glob,torch,re,sys,json
TABLE='configs/testdata/parameters.json'
table=json.load(open(TABLE)); ACTIVE=TABLE.replace('parameters','active'); active=json.load(open(ACTIVE))
from transformers import *
from vlm_modules import LlavaOnevision
from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen3VLConfig, Qwen3VLForConditionalGeneration, InternVLConfig, InternVLForConditionalGeneration
for f in sorted(glob.glob('configs/models/qwen-vl/*.yaml')+glob.glob('configs/models/internvl/*.yaml')+glob.glob('configs/models/llava-onevision/*.yaml')+glob.glob('configs/models/llava/*.yaml')+glob.glob('configs/models/gemma/*-vision.yaml')):
    d=yaml.safe_load(open(f)); v=d['vision']
    t={k:d[k] for k in ('hidden_size','num_hidden_layers','num_attention_heads','num_key_value_heads','intermediate_size','vocab_size','tie_word_embeddings')}
    if d['text_model_type'].startswith('qwen3'): t['head_dim']=d['head_dim']
    if 'num_experts' in d: t|={k:d[k] for k in ('num_experts','num_experts_per_tok','moe_intermediate_size')}
    tie=dict(tie_word_embeddings=d['tie_word_embeddings'])
    mt=d['model_type']
    if mt=='qwen2_vl': c=Qwen2VLConfig(text_config=t,vision_config=dict(depth=v['depth'],embed_dim=v['hidden_size'],hidden_size=d['hidden_size'],num_heads=16,mlp_ratio=4,patch_size=14),**tie); M=Qwen2VLForConditionalGeneration
    if mt=='qwen2_5_vl': c=Qwen2_5_VLConfig(text_config=t,vision_config=dict(depth=v['depth'],hidden_size=v['hidden_size'],out_hidden_size=d['hidden_size'],num_heads=16,intermediate_size=v['intermediate_size'],patch_size=14),**tie); M=Qwen2_5_VLForConditionalGeneration
    if mt.startswith('qwen3_5'):
        if 'num_experts' in d: del t['intermediate_size']; t['shared_expert_intermediate_size']=d['shared_expert_intermediate_size']
        C,M=(Qwen3_5MoeConfig,Qwen3_5MoeForConditionalGeneration) if 'num_experts' in d else (Qwen3_5Config,Qwen3_5ForConditionalGeneration)
        c=C(text_config=t|{k:d[k] for k in d if k.startswith('linear_')}|tie,vision_config=dict(depth=v['depth'],hidden_size=v['hidden_size'],out_hidden_size=d['hidden_size'],num_heads=v['num_heads'],intermediate_size=v['intermediate_size'],patch_size=16,num_position_embeddings=2304),**tie)
    if mt.startswith('qwen3_vl'): kind=mt; mt='qwen3_vl'
    if mt=='qwen3_vl': C,M=(Qwen3VLConfig,Qwen3VLForConditionalGeneration) if kind==mt else (Qwen3VLMoeConfig,Qwen3VLMoeForConditionalGeneration); c=C(text_config=t,vision_config=dict(depth=v['depth'],hidden_size=v['hidden_size'],out_hidden_size=d['hidden_size'],num_heads=16,intermediate_size=v['intermediate_size'],patch_size=16,deepstack_visual_indexes=v['deepstack_visual_indexes'],num_position_embeddings=2304),**tie)
    # InternLM2 has Llama's parameters, some of them in one tensor
    if mt=='internvl': c=InternVLConfig(text_config=t|dict(model_type=d['text_model_type'].replace('internlm2','llama')),vision_config=dict(num_hidden_layers=v['depth'],hidden_size=v['hidden_size'],num_attention_heads=v['num_heads'],intermediate_size=v['intermediate_size'],patch_size=[14,14],image_size=[448,448],norm_type='rms_norm' if v.get('rms_norm') else 'layer_norm',use_qk_norm=v.get('use_qk_norm',False),attention_bias=v['attention_bias']),**tie); M=InternVLForConditionalGeneration
    if mt=='llava_onevision1_5': c=dict(depth=v['depth'],hidden_size=v['hidden_size'],intermediate_size=v['intermediate_size'],num_heads=v['num_heads'],in_channels=3,patch_size=v['patch_size'],spatial_merge_size=v['merge'],layer_norm_eps=v['layer_norm_eps'],out_hidden_size=d['hidden_size']); M=lambda c: LlavaOnevision(c,Qwen3Model(Qwen3Config(**t)))
    if mt=='llava': c=LlavaConfig(text_config=t|dict(model_type='llama'),vision_config=CLIPVisionConfig(num_hidden_layers=v['depth'],hidden_size=v['hidden_size'],num_attention_heads=v['num_heads'],intermediate_size=v['intermediate_size'],patch_size=v['patch_size'],image_size=v['image_size']),**tie); M=LlavaForConditionalGeneration
    if mt=='gemma3': c=Gemma3Config(text_config=t|dict(head_dim=d['head_dim']),vision_config=dict(model_type='siglip_vision_model',num_hidden_layers=v['depth'],hidden_size=v['hidden_size'],num_attention_heads=v['num_heads'],intermediate_size=v['intermediate_size'],patch_size=v['patch_size'],image_size=v['image_size'],vision_use_head=False)); M=Gemma3ForConditionalGeneration
    with torch.device('meta'): m=M(c)
    if hasattr(m,'tie_weights'): m.tie_weights()
    n=sum(p.numel() for p in {id(p):p for p in m.parameters()}.values())
    name=f[len("configs/models/"):-5]
    s=open(f).read(); table[name]=n; s=re.sub(r'(?m)^parameters: \d+',f'parameters: {n}',s)
    if 'num_experts' in d:
        own=sum(p.numel() for k,p in m.named_parameters() if '.experts.' in k); active[name]=n-own+own//d['num_experts']*d['num_experts_per_tok']
        s=re.sub(r'active_parameters: \d+',f'active_parameters: {active[name]}',s)
    open(f,'w').write(s); print(f,n)
open(TABLE,'w').write(json.dumps(dict(sorted(table.items())),indent=1)+'\n'); open(ACTIVE,'w').write(json.dumps(dict(sorted(active.items())),indent=1)+'\n')
