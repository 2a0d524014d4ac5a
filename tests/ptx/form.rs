//! An instruction form: its code, the kinds of its operands and results, and how results compare.

use crate::object::Object;
use crate::tensor::Tensor;

/// What an operand or result is. The kind decides the register and the values that an operand takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Pred,
    S8,
    U8,
    S16,
    U16,
    S32,
    U32,
    S64,
    U64,
    F16,
    Bf16,
    F32,
    F64,
    F16x2,
    Bf16x2,
    /// Two values of 8 bits, `e4m3` or `e5m2`.
    Fp8x2,
    /// A shift amount, position or length.
    Shift,
    /// A source lane or distance of a shuffle.
    Lane,
    /// One of three words, so that lanes have equal operands.
    Few32,
    Few64,
    /// 0 or 1 in a word.
    Bit,
}

impl Kind {
    /// Returns the kind of the last type in the name of an instruction.
    ///
    /// # Panics
    /// The name has no type.
    pub(crate) fn of(name: &str) -> Self {
        let kind = |word: &str| {
            Some(match word {
                "pred" => Self::Pred,
                "s8" => Self::S8,
                "b8" | "u8" => Self::U8,
                "s16" => Self::S16,
                "b16" | "u16" => Self::U16,
                "s32" => Self::S32,
                "b32" | "u32" | "u16x2" | "s16x2" => Self::U32,
                "s64" => Self::S64,
                "b64" | "u64" => Self::U64,
                "f16" => Self::F16,
                "bf16" => Self::Bf16,
                "f32" => Self::F32,
                "f64" => Self::F64,
                "f16x2" => Self::F16x2,
                "bf16x2" => Self::Bf16x2,
                "e4m3x2" | "e5m2x2" => Self::Fp8x2,
                _ => return None,
            })
        };
        let last = name.split(['.', ' ']).rev().find_map(kind);
        last.unwrap_or_else(|| panic!("no type in {name}"))
    }

    /// Returns the number of bytes of a recorded result.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Pred | Self::S8 | Self::U8 | Self::Bit => 1,
            Self::S16 | Self::U16 | Self::F16 | Self::Bf16 | Self::Fp8x2 => 2,
            Self::S64 | Self::U64 | Self::F64 | Self::Few64 => 8,
            _ => 4,
        }
    }

    /// Returns the type of the register.
    pub(crate) fn register(self) -> &'static str {
        match self {
            Self::Pred => "pred",
            Self::Bit => "b32",
            _ => match self.bytes() {
                1 | 2 => "b16",
                4 => "b32",
                _ => "b64",
            },
        }
    }
}

/// How far a result may be from the recorded one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    /// The bits are the same.
    Exact,
    /// Units in the last place.
    Ulp(u64),
    /// The difference, relative to the recorded result.
    Relative(f64),
    /// The difference.
    Absolute(f64),
    /// The largest of the absolute and the relative difference.
    Either(f64, f64),
    /// `sin` and `cos`: absolute up to 2π and up to 100π, none above.
    Circular,
}

/// The threads of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
}

impl Shape {
    /// Returns the number of threads.
    pub(crate) fn threads(&self) -> usize {
        let all = self.grid.iter().chain(&self.block);
        all.map(|extent| *extent as usize).product()
    }
}

/// An instruction form. Each thread of its kernel executes the code once, on operands of its own.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    /// The instruction with its modifiers, and a remark where several forms have the same instruction.
    pub(crate) name: String,
    /// The instructions. Operands are `%a0`, `%a1` …, results `%d0`, `%d1` …; `%in` and `%out` are the
    /// addresses of the thread's first operand and first result, 8 bytes each; `%t` is its index in the
    /// block.
    pub(crate) code: String,
    /// Variables and functions of the module. `#` stands for the number of the kernel here and in the
    /// code, where it follows a letter.
    pub(crate) declarations: String,
    /// Directives of the kernel.
    pub(crate) directives: String,
    pub(crate) operands: Vec<Kind>,
    pub(crate) results: Vec<Kind>,
    pub(crate) bound: Bound,
    /// The threads, if the number of operands does not decide them.
    pub(crate) shape: Option<Shape>,
    /// The texture or surface, whose handle is `%object`.
    pub(crate) object: Option<Object>,
    /// The tensor, whose map is at the generic address `%map`.
    pub(crate) tensor: Option<Tensor>,
    /// The operands of each thread. Without any, they are chosen by the kinds.
    pub(crate) rows: Vec<Vec<u64>>,
}

impl Form {
    /// Returns whether the kernel may write texels.
    pub(crate) fn is_surface(&self) -> bool {
        self.object.as_ref().is_some_and(|object| object.sampler.is_none())
    }

    pub(crate) fn declare(&mut self, declarations: &str) -> &mut Self {
        self.declarations = declarations.to_owned();
        self
    }

    pub(crate) fn direct(&mut self, directives: &str) -> &mut Self {
        self.directives = directives.to_owned();
        self
    }

    /// Adds a texture or surface, and the operands of each thread.
    pub(crate) fn object(&mut self, object: &Object, rows: &[Vec<u64>]) -> &mut Self {
        self.object = Some(object.clone());
        self.rows = rows.to_vec();
        self
    }

    /// Returns the bytes of the memory that the kernel may write besides the results: texels or a tensor.
    pub(crate) fn written(&self) -> usize {
        let surface = self.object.as_ref().filter(|_| self.is_surface());
        let tensor = self.tensor.as_ref().filter(|tensor| tensor.is_written);
        surface.map_or(0, |object| object.texels(0).len())
            + tensor.map_or(0, |tensor| tensor.memory().len())
    }

    pub(crate) fn tensor(&mut self, tensor: Tensor) -> &mut Self {
        self.tensor = Some(tensor);
        self
    }

    pub(crate) fn shape(&mut self, grid: [u32; 3], block: [u32; 3]) -> &mut Self {
        self.shape = Some(Shape { grid, block });
        self
    }
}

/// The forms under construction.
#[derive(Debug, Default)]
pub(crate) struct Forms(pub(crate) Vec<Form>);

impl Forms {
    /// Adds the forms of a pattern, whose `count` operands and result have the last type of the name.
    pub(crate) fn same(&mut self, pattern: &str, count: usize) -> &mut [Form] {
        self.each(pattern, |name| (vec![Kind::of(name); count], vec![Kind::of(name)]))
    }

    /// Adds the forms of a pattern with these operands and results.
    pub(crate) fn typed(
        &mut self,
        pattern: &str,
        operands: &[Kind],
        results: &[Kind],
    ) -> &mut [Form] {
        self.each(pattern, |_| (operands.to_vec(), results.to_vec()))
    }

    /// Adds the forms of a pattern, with operands and results that depend on the name. The code is the
    /// instruction with its results and operands in order.
    pub(crate) fn each(
        &mut self,
        pattern: &str,
        kinds: impl Fn(&str) -> (Vec<Kind>, Vec<Kind>),
    ) -> &mut [Form] {
        let first = self.0.len();
        for name in expand(pattern) {
            let (operands, results) = kinds(&name);
            let list = |letter, kinds: &[Kind]| {
                let names = (0..kinds.len()).map(|index| format!("%{letter}{index}"));
                names.collect::<Vec<_>>()
            };
            let all = [list('d', &results).join("|"), list('a', &operands).join(", ")];
            let all: Vec<_> = all.into_iter().filter(|part| !part.is_empty()).collect();
            let code = format!("{name} {};", all.join(", "));
            self.code(&name, &code, &operands, &results);
        }
        &mut self.0[first..]
    }

    /// Adds one form.
    pub(crate) fn code(
        &mut self,
        name: &str,
        code: &str,
        operands: &[Kind],
        results: &[Kind],
    ) -> &mut Form {
        self.0.push(Form {
            name: name.to_owned(),
            code: code.to_owned(),
            declarations: String::new(),
            directives: String::new(),
            operands: operands.to_vec(),
            results: results.to_vec(),
            bound: Bound::Exact,
            shape: None,
            object: None,
            tensor: None,
            rows: Vec::new(),
        });
        self.0.last_mut().expect("just added")
    }
}

/// Returns the texts of a pattern: `a{b,c}` stands for `ab` and `ac`. Braces do not nest.
pub(crate) fn expand(pattern: &str) -> Vec<String> {
    let Some((before, rest)) = pattern.split_once('{') else {
        return vec![pattern.to_owned()];
    };
    let (choices, after) = rest.split_once('}').expect("a closed brace");
    let tails = expand(after);
    let choices = choices.split(',');
    let texts =
        choices.flat_map(|choice| tails.iter().map(move |tail| format!("{before}{choice}{tail}")));
    texts.collect()
}

/// Sets the bound of forms.
pub(crate) fn bounded(forms: &mut [Form], bound: Bound) {
    for form in forms {
        form.bound = bound;
    }
}
