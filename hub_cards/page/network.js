// A checkpoint's weights, and what one layer makes of a neighbourhood: in double precision, from the weights in float32.

// The tensors of a safetensors file: names, shapes and values, all float32 (build.py sees to it). Refuses what is cut.
export function readTensors(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const start = 8 + Number(view.getBigUint64(0, true));
  if (start > bytes.length) throw new Error("model.safetensors is cut off: its header is longer than the file");
  const tensors = {};
  const { __metadata__, ...header } = JSON.parse(new TextDecoder().decode(bytes.subarray(8, start)));
  for (const [name, { shape, data_offsets: [from, to] = [] }] of Object.entries(header)) {
    const count = shape.reduce((product, size) => product * size, 1);
    if (to - from !== 4 * count || start + to > bytes.length) throw new Error(`model.safetensors is damaged at ${name}`);
    const values = Float64Array.from({ length: count }, (_, place) => view.getFloat32(start + from + 4 * place, true));
    if (!values.every(Number.isFinite)) throw new Error(`model.safetensors is damaged: not all of ${name} is finite`);
    tensors[name] = { shape, values };
  }
  return tensors;
}

const SERIES_END = 6; // beyond it erf is 1 in double precision

// The error function, by a series of positive terms (Abramowitz and Stegun, 7.1.6).
export function erf(x) {
  if (Math.abs(x) >= SERIES_END) return Math.sign(x);
  let term = x, sum = x;
  for (let n = 1; Math.abs(term) > 1e-18 * Math.abs(sum); n++) sum += (term *= (2 * x * x) / (2 * n + 1));
  return Math.SQRT2 * SLOPE * Math.exp(-x * x) * sum;
}

const SLOPE = Math.sqrt(2 / Math.PI);

// Values to which the browser's functions are held before anything is said: argument, exp, tanh, erf; by mpmath, 20 digits.
const TABLE = [
  [-20, 2.0611536224385578e-9, -1, -1], [-3.5, 0.030197383422318501, -0.99817789761119871, -0.99999925690162766],
  [-0.75, 0.47236655274101471, -0.63514895238728732, -0.71115563365351513], [9, 8103.0839275753840, 0.99999996954004097, 1],
  [0.3, 1.3498588075760031, 0.29131261245159090, 0.32862675945912743],
  [1e-3, 1.0010005001667083, 0.00099999966666680002, 0.0011283787909692363],
  [2.25, 9.4877358363585257, 0.97802611473881363, 0.99853728341331885],
];

// Why the browser's arithmetic is not what PROOF.md assumes; empty if it is.
export function unfitArithmetic() {
  const near = (found, right) => Math.abs(found - right) <= 1e-14 * Math.abs(right);
  const isRight = ([x, exp, tanh, area]) => near(Math.exp(x), exp) && near(Math.tanh(x), tanh) && near(erf(x), area);
  const wrong = TABLE.find((row) => !isRight(row));
  return wrong ? `this browser's exp, tanh or erf is wrong at ${wrong[0]}, so nothing can be said here` : "";
}

// A (rows, columns) matrix times each of some vectors, four at a time, with a bias if there is one.
export function multiply({ shape: [rows, columns], values }, vectors, bias) {
  const results = vectors.map(() => new Float64Array(rows));
  for (let group = 0; group < vectors.length; group += 4) {
    const [a, b, c, d] = [0, 1, 2, 3].map((offset) => vectors[group + offset] ?? vectors[group]);
    const own = results.slice(group, group + 4);
    for (let row = 0, place = 0; row < rows; row++) {
      let first = bias ? bias.values[row] : 0, second = first, third = first, fourth = first;
      for (let column = 0; column < columns; column++, place++) {
        const weight = values[place];
        first += weight * a[column];
        second += weight * b[column];
        third += weight * c[column];
        fourth += weight * d[column];
      }
      own[0][row] = first;
      if (own.length > 1) own[1][row] = second;
      if (own.length > 2) own[2][row] = third;
      if (own.length > 3) own[3][row] = fourth;
    }
  }
  return results;
}

export const plus = (left, right) => left.map((value, place) => value + right[place]);

export const gelu = (x) => 0.5 * x * (1 + Math.tanh(SLOPE * (x + 0.044715 * x * x * x)));

// RMSNorm of a vector.
export function rms(weight, vector, eps) {
  const scale = 1 / Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0) / vector.length + eps);
  return vector.map((value, place) => value * scale * weight[place]);
}

// One layer over symbols: a symbol is a token or, for encoders, a token and its label of the pass before.
export class Network {
  constructor(config, tensors) {
    const { num_attention_heads: heads, hidden_size: width, model_type: type } = config;
    Object.assign(this, { config, tensors, heads, width, layer: "model.layers.0.", encoder: type === "pairwise_bert" });
    this.reads = this.encoder || config.attention_scale !== "zero";
    this.headWidth = this.encoder ? width / heads : config.head_dim;
    this.eps = this.encoder ? config.layer_norm_eps : config.norm_eps;
    this.vectors = this.encoder ? this.weight("self_attn.relations.0") : null;
    this.biases = this.encoder ? null : tensors["model.position_encoding.relation_bias"];
    this.symbols = new Map(); // by code
    this.rows = []; // by symbol: its state, query, and what each head adds when it looks at it
    this.scores = new Map();
    const { relation_range: bounds } = config;
    const { shape } = this.vectors ?? this.biases;
    // The number of the relation to `$`, or to the sink.
    this.besides = !this.encoder && bounds ? bounds[1] - bounds[0] + 1 : shape.at(this.encoder ? 0 : 1) - 1;
  }

  // This network with noise on its weights: `amount` times the spread of each tensor, the same draw at every amount.
  noisy(amount) {
    let seed = 1;
    const uniform = () => ((seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) + 1) / 2 ** 32;
    const draw = () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
    const noise = ({ shape, values }) => {
      const spread = Math.sqrt(values.reduce((sum, value) => sum + value * value, 0) / values.length);
      return { shape, values: values.map((value) => value + amount * spread * draw()) };
    };
    const tensors = Object.fromEntries(Object.entries(this.tensors).map(([name, tensor]) => [name, noise(tensor)]));
    const other = new Network(this.config, tensors);
    for (const code of this.symbols.keys()) other.symbol(Math.floor(code / 64), (code % 64) - 1);
    return other;
  }

  weight(name) {
    return this.tensors[`${this.layer}${name}.weight`];
  }

  bias(name) {
    return this.encoder ? this.tensors[`${this.layer}${name}.bias`] : null;
  }

  project(name, vectors) {
    return multiply(this.weight(name), vectors, this.bias(name));
  }

  // RMSNorm of a decoder, LayerNorm of an encoder.
  norm(name, vector) {
    const weight = this.tensors[`${name}.weight`], size = vector.length;
    const bias = this.encoder ? this.tensors[`${name}.bias`] : null;
    let mean = 0, square = 0;
    if (bias) for (const value of vector) mean += value / size;
    for (const value of vector) square += (value - mean) ** 2;
    const scale = 1 / Math.sqrt(square / size + this.eps);
    return vector.map((value, place) => (value - mean) * scale * weight.values[place] + (bias ? bias.values[place] : 0));
  }

  // The number of a token, with its label of the pass before if there is one, 0 for none yet.
  symbol(token, label = -1) {
    const code = token * 64 + label + 1;
    if (!this.symbols.has(code)) {
      this.symbols.set(code, this.rows.length);
      this.rows.push(this.makeRow(token, label));
    }
    return this.symbols.get(code);
  }

  makeRow(token, label) {
    const { width, layer } = this;
    // The sink has key 0 and value 0.
    if (token < 0) return { query: null, key: null, adds: new Float64Array(this.heads * width) };
    const rowOf = (table, row) => this.tensors[`model.${table}.weight`].values.slice(row * width, (row + 1) * width);
    let state = rowOf("embed_tokens", token);
    if (label >= 0) state = plus(state, rowOf("embed_states", label));
    if (this.encoder) state = this.norm("model.embedding_norm", state);
    const seen = this.encoder ? state : this.norm(`${layer}attention_norms.input`, state);
    const [value] = this.project("self_attn.v_proj", [seen]), output = this.weight("self_attn.o_proj");
    const adds = new Float64Array(this.heads * width);
    for (let head = 0; head < this.heads; head++) {
      for (let row = 0; row < width; row++) {
        const from = row * output.shape[1];
        let sum = 0;
        for (let unit = head * this.headWidth; unit < (head + 1) * this.headWidth; unit++) {
          sum += output.values[from + unit] * value[unit];
        }
        adds[head * width + row] = sum;
      }
    }
    const [query, key] = ["q", "k"].map((name) => (this.reads ? this.project(`self_attn.${name}_proj`, [seen])[0] : null));
    return { state, query, key, adds };
  }

  // The scores (heads) of a query that looks at a key in a relation.
  score(own, key, relation) {
    const code = (own * 4096 + key) * 4096 + relation;
    let found = this.scores.get(code);
    if (found) return found;
    found = new Float64Array(this.heads);
    const asking = this.rows[own].query, offered = this.rows[key].key, scale = this.headWidth ** -0.5;
    const { vectors, biases } = this;
    for (let head = 0; head < this.heads; head++) {
      let sum = 0;
      for (let unit = 0; asking && unit < this.headWidth; unit++) {
        const place = head * this.headWidth + unit;
        const row = vectors ? relation * vectors.shape[1] + (vectors.shape[1] > 1 ? head : 0) : 0;
        const vector = vectors ? vectors.values[row * this.headWidth + unit] : 0;
        sum += asking[place] * ((offered ? offered[place] : 0) + vector);
      }
      found[head] = sum * scale + (biases ? biases.values[relation * this.heads + head] : 0);
    }
    this.scores.set(code, found);
    return found;
  }

  // The attention (heads, keys) of a symbol to keys [symbol, relation].
  attention(own, keys) {
    const size = keys.length, weights = new Float64Array(this.heads * size);
    const scores = keys.map(([key, relation]) => this.score(own, key, relation));
    for (let head = 0, from = 0; head < this.heads; head++, from += size) {
      let highest = -Infinity, sum = 0;
      for (const score of scores) highest = Math.max(highest, score[head]);
      for (let place = 0; place < size; place++) sum += weights[from + place] = Math.exp(scores[place][head] - highest);
      for (let place = 0; place < size; place++) weights[from + place] /= sum;
    }
    return weights;
  }

  // What all heads add to a symbol that sees these keys.
  attended(own, keys) {
    const { width } = this, weights = this.attention(own, keys), output = new Float64Array(width);
    for (let head = 0; head < this.heads; head++) {
      for (let place = 0; place < keys.length; place++) {
        const share = weights[head * keys.length + place], { adds } = this.rows[keys[place][0]], from = head * width;
        for (let unit = 0; unit < width; unit++) output[unit] += share * adds[from + unit];
      }
    }
    const bias = this.bias("self_attn.o_proj");
    return bias ? plus(output, bias.values) : output;
  }

  // The logits in each of some neighbourhoods { own, keys }.
  logits(cases) {
    const { width, layer, encoder } = this, { norm_placement: placement } = this.config;
    const before = cases.map(({ own }) => this.rows[own].state);
    const attended = cases.map(({ own, keys }) => this.attended(own, keys));
    if (encoder) {
      const states = attended.map((added, place) => this.norm(`${layer}attention_norm`, plus(before[place], added)));
      const gelu = (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2));
      const added = this.project("down_proj", this.project("up_proj", states).map((units) => units.map(gelu)));
      const last = added.map((vector, place) => this.norm(`${layer}mlp_norm`, plus(states[place], vector)));
      return multiply(this.tensors["classifier.weight"], last, this.tensors["classifier.bias"]);
    }
    const outer = (name, vector) => (placement === "sandwich" ? this.norm(`${layer}${name}_norms.output`, vector) : vector);
    const states = attended.map((added, place) => plus(before[place], outer("attention", added)));
    const read = states.map((state) => this.norm(`${layer}mlp_norms.input`, state));
    const gates = this.project("mlp.gate_proj", read);
    const hidden = this.project("mlp.up_proj", read)
      .map((units, place) => units.map((x, unit) => gelu(x) * gates[place][unit]));
    const last = this.project("mlp.down_proj", hidden)
      .map((added, place) => this.norm("model.norm", plus(states[place], outer("mlp", added))));
    if (!this.config.tie_word_embeddings) return multiply(this.tensors["lm_head.weight"], last);
    const scaled = last.map((state) => state.map((value) => value * width ** -0.5));
    return multiply(this.tensors["model.embed_tokens.weight"], scaled);
  }
}
