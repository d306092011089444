import json,random,sys
random.seed(1)
def mix(): return (50,20) if random.random()<.5 else (500,200)
a=[dict(at_ms=0,prompt_tokens=p,output_tokens=o,tenant="a") for p,o in (mix() for _ in range(1000))]
# B arrives at a random phase of the steps, once a second
b=[dict(at_ms=1000*i+500+random.random()*100,prompt_tokens=50,output_tokens=20,tenant="b") for i in range(55)]
json_l=lambda f,x: open(f,'w').write("".join(json.dumps(r)+"\n" for r in x))
json_l('flood.jsonl',a+b); json_l('alone.jsonl',b)
json_l('burst.jsonl',[dict(at_ms=0,prompt_tokens=p,output_tokens=o) for p,o in (mix() for _ in range(200))])
