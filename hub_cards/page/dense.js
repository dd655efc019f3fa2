// A decoder whose tokens see all tokens before them: a learned table, rotary ids or no positions, in any number of layers.

import { gelu, multiply, plus, rms } from "./network.js";

export const ENCODINGS = ["learned", "rotary", "none"];
const MOST_READ = 1000; // tokens, since a token sees all others
const MARKED = /_marked_top$/;

export class Dense {
  constructor(config, tensors) {
    const { num_attention_heads: heads, num_hidden_layers: layers, head_dim: headWidth } = config;
    this.tables = Object.keys(tensors).filter((name) => name.startsWith("model.position_encoding.tables")).sort();
    this.scale = config.attention_scale === "none" ? 1 : headWidth ** -0.5;
    Object.assign(this, { config, tensors, heads, layers, headWidth, encoder: false });
  }

  // The ids of the tokens of a sheet by the model's own coupling rule: a list for each level.
  ids(paper) {
    const { ids } = paper, { coupling } = this.config;
    if (coupling === "sequential") return [Array.from({ length: this.most(paper) }, (_, place) => place)];
    return MARKED.test(coupling) ? ids.map((level) => level.map((id, place) => (place && id ? id + 1 : 1))) : ids;
  }

  // The most tokens of a problem and its response: the rule that counts tokens plans a response as long as the question.
  most({ text, query }) {
    return this.config.coupling === "sequential" ? 2 * query : text.length + 1;
  }

  start() {
    return Array.from({ length: this.layers }, () => ({ keys: [], values: [] }));
  }

  // The logits of the token after this one, and who looks where: a row of shares for each head of each layer.
  push(cache, token, ids) {
    if (cache[0].keys.length >= MOST_READ) throw new Error(`this page gives a model that sees all tokens ${MOST_READ}`);
    const { config, tensors } = this, looks = [];
    const rowOf = (name, row) => {
      const { shape: [rows, width], values } = tensors[name];
      if (row >= rows) throw new Error(`this model has vectors for ids up to ${rows - 1}, and this problem needs id ${row}`);
      return values.subarray(row * width, (row + 1) * width);
    };
    const norm = (name, vector) => {
      const weight = tensors[`${name}.weight`];
      return weight ? rms(weight.values, vector, config.norm_eps) : vector; // a norm that this placement lacks
    };
    let state = rowOf("model.embed_tokens.weight", token);
    ids.forEach((id, level) => {
      if (this.tables.length) state = plus(state, rowOf(this.tables[level % this.tables.length], id));
    });
    cache.forEach((seen, place) => {
      const layer = `model.layers.${place}.`, weight = (name) => tensors[`${layer}${name}.weight`];
      const project = (name, vector) => multiply(weight(name), [vector])[0];
      const around = (name, sublayer) => {
        const added = sublayer(norm(`${layer}${name}_norms.input`, state));
        state = norm(`${layer}${name}_norms.sum`, plus(state, norm(`${layer}${name}_norms.output`, added)));
      };
      around("attention", (read) => project("self_attn.o_proj", this.attend(layer, seen, read, ids, project, looks)));
      around("mlp", (read) => {
        const gates = project("mlp.gate_proj", read);
        return project("mlp.down_proj", project("mlp.up_proj", read).map((x, unit) => gelu(x) * gates[unit]));
      });
    });
    const last = norm("model.norm", state), tied = config.tie_word_embeddings;
    const scaled = tied ? last.map((value) => value * config.hidden_size ** -0.5) : last;
    return { logits: multiply(tensors[tied ? "model.embed_tokens.weight" : "lm_head.weight"], [scaled])[0], looks };
  }

  // What all heads of a layer read; a token's key and value join those that the tokens after it see.
  attend(layer, seen, read, ids, project, looks) {
    const { config, tensors, heads, headWidth } = this, mixed = new Float64Array(heads * headWidth);
    const [queries, keys, values] = ["q", "k", "v"].map((name) => {
      const whole = project(`self_attn.${name}_proj`, read);
      return Array.from({ length: heads }, (_, head) => whole.slice(head * headWidth, (head + 1) * headWidth));
    });
    seen.values.push(values);
    const visible = seen.values.length, factors = (name) => tensors[`${layer}self_attn.${name}_factor`]?.values;
    const unit = (vector) => vector.map((value) => value / Math.max(Math.hypot(...vector), 1e-12));
    for (let head = 0; head < heads; head++) {
      if (config.qk_norm) {
        keys[head] = unit(keys[head]);
        queries[head] = unit(queries[head]).map((value) => (value * factors("qk_norm")[head]) / this.scale);
      }
      if (config.attention_scale === "log_length") {
        queries[head] = queries[head].map((value) => value * Math.log(visible) * factors("log_length")[head]);
      }
      if (config.position_encoding === "rotary") [queries, keys].forEach((all) => (all[head] = this.rotate(all[head], ids)));
    }
    seen.keys.push(keys);
    for (let head = 0; head < heads; head++) {
      const dot = (key) => key[head].reduce((sum, value, place) => sum + value * queries[head][place], 0) * this.scale;
      const scores = seen.keys.map(dot), highest = scores.reduce((most, score) => Math.max(most, score), -Infinity);
      const weights = scores.map((score) => Math.exp(score - highest)), sum = weights.reduce((all, weight) => all + weight);
      weights.forEach((weight, key) => seen.values[key][head].forEach((value, place) => {
        mixed[head * headWidth + place] += (weight / sum) * value;
      }));
      looks.push(weights.map((weight) => weight / sum));
    }
    return mixed;
  }

  // A vector whose pairs of units are turned by the ids of its levels, each level its share of the units.
  rotate(vector, ids) {
    const share = vector.length / ids.length, half = share / 2, turned = vector.slice();
    ids.forEach((id, level) => {
      for (let unit = 0; unit < half; unit++) {
        const angle = id * this.config.rotary_base ** (-unit / half), place = level * share + unit;
        const [first, second] = [vector[place], vector[place + half]];
        turned[place] = first * Math.cos(angle) - second * Math.sin(angle);
        turned[place + half] = second * Math.cos(angle) + first * Math.sin(angle);
      }
    });
    return turned;
  }
}

// Writes a response greedily. Returns all tokens, and what each was written from: the shares of all heads, by token.
export function writeDense(network, paper) {
  const cache = network.start(), ids = network.ids(paper), tokens = paper.text.slice(0, paper.query), sights = [];
  const read = (place) => network.push(cache, tokens[place], ids.map((level) => level[place]));
  for (let place = 0; place < paper.query - 1; place++) read(place);
  const end = tokens[0];
  while (tokens.length < network.most(paper) && (tokens.length === paper.query || tokens.at(-1) !== end)) {
    const { logits, looks } = read(tokens.length - 1);
    sights.push(looks);
    tokens.push(logits.reduce((best, value, token) => (value > logits[best] ? token : best), 0));
  }
  return { tokens, sights };
}
