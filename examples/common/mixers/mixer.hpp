// SPDX-License-Identifier: Apache-2.0
//
// What mixes the time steps of a sequence: the part of the model that is exchanged and compared.
#pragma once

#include "common/layers/parameter.hpp"
#include "common/support/ranks.hpp"
#include "common/support/rng.hpp"

#include <aft/aft.hpp>

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace examples {

enum class mixer_kind { local, simple, conv, full, attention, conv2d };

/// Those of sequences, and those of images: on a grid there is no order, and no stream.
inline constexpr mixer_kind all_mixers[] = {mixer_kind::local, mixer_kind::conv, mixer_kind::attention,
                                            mixer_kind::full, mixer_kind::simple};
inline constexpr mixer_kind image_mixers[] = {mixer_kind::conv2d, mixer_kind::attention, mixer_kind::full,
                                              mixer_kind::local, mixer_kind::simple};

std::string_view name_of(mixer_kind kind);
std::optional<mixer_kind> mixer_named(std::string_view name, std::span<const mixer_kind> among = all_mixers);
/// Of a command line, each once, in their order; "all" names all of them. Throws user_error.
std::vector<mixer_kind> mixers_named(const std::vector<std::string>& names, std::span<const mixer_kind> among);

/// Whether each of several ranks can have a part of its sequences.
bool can_be_cut(mixer_kind kind);

/// model.safetensors becomes model-conv.safetensors; an empty path stays empty.
std::filesystem::path file_of_mixer(const std::filesystem::path& file, mixer_kind kind);

/// What the papers change in AFT-conv to see what it is for.
struct filter_choices {
  bool naive = false;     // the filter is learned as it is, not by the form of AFT Eq. 8
  bool gated = true;      // multiplied by sigmoid(q)
  bool connected = true;  // keys outside the filter count, with w = 0
  double entropy = 0;     // weight in the loss of the filters' entropy, AFT Eq. 9
  bool one_tap = false;   // each head has one tap: samples of it while training, the largest after, AFT Eq. 10
  double gain = 0;        // of every filter at the start, AFT Eq. 8; the papers' is 0
};

struct mixer_shape {
  index_t channels;
  index_t heads;
  index_t context;    // the longest sequence
  index_t max_batch;  // at that length
  index_t window;     // local: keys s with t - window < s <= t, or |t - s| < window; conv: taps; conv2d: taps an axis
  bool tied_keys;     // conv, conv2d: one key channel for all channels of a head
  bool causal = true;
  index_t columns = 0;         // conv2d: of the grid whose rows follow each other in the sequence
  filter_choices filter = {};  // conv2d
  index_t bias_rank = 0;       // full, local: of the factors u, v of the bias, AFT Eq. 7; 0: it is learned whole
  const ranks* cut = nullptr;  // each of them has a part of every sequence; null: all is here

  /// Rows of a batch that are here.
  index_t rows() const { return max_batch * (cut == nullptr ? context : cut->own_part(context).count); }
};

/// The sequences of one call, `batch` x `time` rows, one after the other.
struct sequences {
  index_t batch;
  index_t time;
  index_t first = 0;  // position of the first row: what came before is on other ranks, or in a stream
  index_t whole = 0;  // positions of a sequence on all ranks; 0: no more than are here
  index_t rows() const { return batch * time; }
  index_t rows_of_all() const { return batch * (whole == 0 ? time : whole); }
};

/// What a mixer remembers of sequences whose rows come in parts. It belongs to the mixer that made it, and reads the
/// mixer's parameters at every call.
template <class Real>
class mixer_stream {
 public:
  virtual ~mixer_stream() = default;

  /// The next s.time rows of each of the sequences, as mixer::forward would compute them with all rows before.
  virtual void forward(sequences s, const Real* qkv, Real* y, const aft::cpu& exec) = 0;
  /// Every sequence begins again.
  virtual void reset() = 0;
  /// Bytes kept of one sequence.
  virtual index_t bytes() const = 0;
};

template <class Real>
class mixer {
 public:
  virtual ~mixer() = default;

  /// Columns of the joint projection that yields q, k and v.
  virtual index_t input_width() const = 0;
  /// Which of them are keys, one for each head; none where keys are not shared by a head's channels.
  struct column_range {
    index_t first = 0;
    index_t count = 0;
  };
  virtual column_range head_keys() const { return {}; }
  virtual void forward(sequences s, const Real* qkv, Real* y, const aft::cpu& exec) = 0;
  /// qkv and y as they were in the forward call.
  virtual void backward(sequences s, const Real* qkv, const Real* y, const Real* dy, Real* dqkv,
                        const aft::cpu& exec) = 0;
  /// Remembers `count` sequences at once. Throws std::logic_error where rows see later ones.
  virtual std::unique_ptr<mixer_stream<Real>> make_stream(index_t count) = 0;
  /// Whether a stream goes on behind row `context`. A bias or a cache with a place for each row ends there.
  virtual bool unlimited() const { return false; }
  virtual void collect(parameter_list<Real>&) {}
  /// What is random in a training step, for the calls up to the next one; settle() ends it, as it is at the start.
  virtual void draw(random_stream) {}
  virtual void settle() {}
  /// The learned position bias, where it is an array of its own; none for attention, AFT-simple and factors.
  virtual parameter<Real>* position_bias() { return nullptr; }
  /// What it is learned as: itself, or its factors.
  virtual parameter_list<Real> bias_parameters() {
    parameter<Real>* const bias = position_bias();
    return bias == nullptr ? parameter_list<Real>{} : parameter_list<Real>{bias};
  }
  /// How far from 0 they start.
  virtual double bias_deviation() const { return 0.0; }
  /// The bias as the operator gets it, in the shape of position_bias(): another array where that is not it yet.
  virtual const Real* operator_bias() { return position_bias() == nullptr ? nullptr : position_bias()->value.data(); }
};

template <class Real>
std::unique_ptr<mixer<Real>> make_mixer(mixer_kind kind, const std::string& name, const mixer_shape& shape);

}  // namespace examples
