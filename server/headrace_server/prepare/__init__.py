"""Turns what the user named into a model directory.

    cli           flags in, progress on stderr, one JSON line out
    sources       embedded model, local directory, .gguf file or hub id: which one, and how each becomes a directory
    checkpoint    checks a directory: config.json, tokenizer.json, whole safetensors files
    hub           downloads from the Hugging Face hub, or uses its cache
    cache         where conversions live, and how one becomes visible only when it is whole
    convert       GGUF → config.json, tokenizer.json, tokenizer_config.json, generation_config.json, model.safetensors
    gguf_file     reading a GGUF
    gguf_config, rope_scaling, gguf_weights
                  its metadata and tensors in transformers' terms
    vocabulary, gguf_tokenizer, byte_level_bpe, sentencepiece_bpe, pretokenizers
                  its vocabulary as a tokenizer.json
    bfloat16, safetensors_file
                  numbers and bytes

Nothing here imports torch. `gguf`, `numpy` and `huggingface_hub` are imported only where there is work for them, so
naming a model that is ready costs a few stat calls.
"""
