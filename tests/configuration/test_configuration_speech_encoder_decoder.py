"""From speech to text: what the whole says of its parts under the names of Whisper's code."""

import tiny
from errors import raises_sentence
from qkv import QkvAudioEncoderConfig


def test_the_whole_speaks_for_its_parts() -> None:
    config = tiny.speech_encoder_decoder(decoder={"max_position_embeddings": 20, "num_hidden_layers": 3})
    assert type(config.encoder) is QkvAudioEncoderConfig and not config.share_embeddings
    assert (config.max_source_positions, config.max_target_positions, config.decoder_layers) == (48, 20, 3)
    with raises_sentence("max_source_positions=5"):
        tiny.speech_encoder_decoder(max_source_positions=5)
