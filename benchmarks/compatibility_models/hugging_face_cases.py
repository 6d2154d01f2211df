"""Token tables of Hugging Face models with small random configs; output layers are tied to them."""

from typing import Any

import torch
from torch import Tensor, nn

from compatibility_models.case import Case, generator

NUM_TOKENS, WIDTH, LENGTH = 50, 16, 6


def tokens(step: int) -> tuple[Tensor]:
    return (torch.randint(3, NUM_TOKENS, (8, LENGTH), generator=generator(step)),)


def cases() -> list[Case]:
    import transformers

    small: dict[str, Any] = {"vocab_size": NUM_TOKENS, "hidden_size": WIDTH, "num_attention_heads": 2}
    small |= {
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "max_position_embeddings": 16,
        "tie_word_embeddings": True,
    }
    small |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "pad_token_id": 0}
    gpt2 = {"vocab_size": NUM_TOKENS, "n_embd": WIDTH, "n_layer": 1, "n_head": 2, "n_positions": 16}
    gpt2 |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": 2}
    t5 = {"vocab_size": NUM_TOKENS, "d_model": WIDTH, "d_ff": 16, "d_kv": 8, "num_layers": 1, "num_heads": 2}
    t5 |= {"dropout_rate": 0.0, "decoder_start_token_id": 0}
    distil = {"vocab_size": NUM_TOKENS, "dim": WIDTH, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, "dropout": 0.0}
    distil |= {"attention_dropout": 0.0, "max_position_embeddings": 16}
    llama = {key: value for key, value in small.items() if "dropout" not in key} | {"num_key_value_heads": 2}

    def of(model: str, config: str, settings: dict[str, Any]) -> Any:
        def construct() -> nn.Module:
            built: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**settings))
            return built

        return construct

    def logits(model: nn.Module, ids: Tensor) -> Tensor:
        found: Tensor = model(ids).logits
        return found

    def both(model: nn.Module, ids: Tensor) -> Tensor:
        found: Tensor = model(input_ids=ids, decoder_input_ids=ids).logits
        return found

    return [
        Case("BERT", of("BertForMaskedLM", "BertConfig", small), tokens, logits),
        Case("DistilBERT", of("DistilBertForMaskedLM", "DistilBertConfig", distil), tokens, logits),
        Case("GPT-2", of("GPT2LMHeadModel", "GPT2Config", gpt2), tokens, logits),
        Case("Llama (tied)", of("LlamaForCausalLM", "LlamaConfig", llama), tokens, logits),
        Case("Qwen2 (tied)", of("Qwen2ForCausalLM", "Qwen2Config", llama), tokens, logits),
        Case("T5", of("T5ForConditionalGeneration", "T5Config", t5 | {"tie_word_embeddings": True}), tokens, both),
        Case("BERT classifier", of("BertForSequenceClassification", "BertConfig", small), tokens, logits),
    ]
